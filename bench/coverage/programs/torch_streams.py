"""PyTorch, streams and threads: four threads with streams of their own, priorities, events between streams"""

import threading

import evidence

torch = evidence.deterministic_torch()
results = {}


def work(number):
    source = torch.Generator().manual_seed(number)
    a = torch.randn(512, 512, generator=source)
    own = torch.cuda.Stream(priority=-(number % 2))
    other = torch.cuda.Stream()
    with torch.cuda.stream(own):
        x = a.pin_memory().to("cuda", non_blocking=True)
        for _ in range(40):
            x = torch.tanh(x @ x.T / 512)
            produced = torch.cuda.Event()
            produced.record(own)
            with torch.cuda.stream(other):
                other.wait_event(produced)
                y = x * 0.5 + 0.25
                consumed = torch.cuda.Event()
                consumed.record(other)
            own.wait_event(consumed)
            x = y
    own.synchronize()
    results[f"thread {number}"] = evidence.digest_tensor(x)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if len(results) != len(threads):
    raise SystemExit("a thread failed")
evidence.report(dict(sorted(results.items())), "torch")
