import time, signal, os
from tests.interposer.conftest import *
from tests.conftest import *
from tests.interposer.test_two_users import softgpu_env, folder, holder, holding_program
from tests.interposer.test_gates import OBEDIENT, order, ready, use
def test_time(tenant, folder, holder, tenants_now):
    low = ready(tenant("opportunistic", OBEDIENT))
    took = []; shut = []
    for i in range(15):
        t0 = time.monotonic(); h = holder(0)
        order(low, "queue 5")
        while not use(tenants_now(), low).gated: order(low, "queue 1")
        t = time.monotonic(); os.kill(h.process.pid, signal.SIGKILL)
        while order(low, "done?") != "True": pass
        took.append(round((time.monotonic()-t)*1000,1)); h.end()
    print(sorted(took))
