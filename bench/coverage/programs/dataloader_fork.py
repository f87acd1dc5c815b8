"""PyTorch, DataLoader: workers by fork, pinned memory, asynchronous copies"""

import evidence

evidence.need("torch")
import loading

if __name__ == "__main__":
    loading.train_from_workers("fork")
