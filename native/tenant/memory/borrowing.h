// Memory of another process that was lent to this one (lending.h), opened and closed as cuIpcOpenMemHandle and
// cuIpcCloseMemHandle do. Works in any process behind the interposer, tenant or not. It is counted where it was made,
// and stays valid when its lender has freed it or is gone.
#pragma once

#include "tenant/memory/loan_handle.h"
#include "tenant/memory/residence.h"

namespace tenant {

// False: the handle is the driver's.
bool borrow(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned int flags, CUresult* result);
// False: the driver shall answer.
bool give_back_borrowed(CUdeviceptr address, CUresult* result);

// The allocation that a pointer lies in, as its lender knows it; false: not borrowed.
bool borrowed_range(CUdeviceptr pointer, MovableRange* out);

}  // namespace tenant
