// The pages of GPU memory that several allocations may lie in: a page is counted while the driver has it.
//
// An allocation is *leaving* while the driver is called to free it. The driver gives the page back amid the call that
// frees the last one, and may give its address out again before that call returns. So what enters a page in which
// nothing is left but leaving allocations is charged for a page of its own, and pages are given back when the last
// call has returned.
#pragma once

#include "tenant/memory/table.h"

namespace tenant {

constexpr uint64_t kMemoryPage = uint64_t{2} << 20;

class SharedPages {
 public:
    // Each returns how many bytes the driver has more, or less.
    uint64_t enter(uint64_t address, uint64_t bytes) {
        return each(address, bytes, [&](uint64_t number) { return enter_page(number); }) + whole(address, bytes);
    }
    void begin_to_leave(uint64_t address, uint64_t bytes) {
        each(address, bytes, [&](uint64_t number) {
            Page* page = pages_.find(number);
            if (!page || !page->staying) return 0;
            --page->staying;
            ++page->leaving;
            return 0;
        });
    }
    uint64_t complete(uint64_t address, uint64_t bytes) {
        return each(address, bytes, [&](uint64_t number) { return end_leaving(number, 0); }) + whole(address, bytes);
    }
    // The driver did not free it.
    uint64_t stay(uint64_t address, uint64_t bytes) {
        return each(address, bytes, [&](uint64_t number) { return end_leaving(number, 1); });
    }
    void abandon() { pages_.abandon(); }

 private:
    struct Page {
        uint32_t staying, leaving;  // allocations
        uint32_t charged;           // pages, at this address
    };

    // The parts of the first and the last page.
    template <class Change>
    static uint64_t each(uint64_t address, uint64_t bytes, Change&& change) {
        if (bytes == 0) return 0;
        uint64_t end = address + bytes, first = address / kMemoryPage, last = (end - 1) / kMemoryPage;
        uint64_t changed = 0;
        if (address % kMemoryPage || end < (first + 1) * kMemoryPage) changed += change(first);
        if (last != first && end % kMemoryPage) changed += change(last);
        return changed * kMemoryPage;
    }
    static uint64_t whole(uint64_t address, uint64_t bytes) {
        uint64_t first = (address + kMemoryPage - 1) / kMemoryPage, end = (address + bytes) / kMemoryPage;
        return end > first ? (end - first) * kMemoryPage : 0;
    }

    uint32_t enter_page(uint64_t number) {
        Page* page = pages_.find(number);
        if (!page) return pages_.enter(number, {1, 0, 1}) != nullptr;
        if (page->staying++ != 0) return 0;
        ++page->charged;
        return 1;
    }
    uint32_t end_leaving(uint64_t number, uint32_t stays) {
        Page* page = pages_.find(number);
        if (!page || !page->leaving) return 0;
        page->staying += stays;
        if (--page->leaving != 0) return 0;
        uint32_t needed = page->staying != 0, given = page->charged - needed;
        page->charged = needed;
        Page gone;
        if (!needed) pages_.take(number, &gone);
        return given;
    }

    MemoryTable<Page> pages_;
};

}  // namespace tenant
