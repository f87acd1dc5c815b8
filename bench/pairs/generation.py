"""Eager text generation by transformers, bound by the CPU: small kernels with the host's pauses between them."""

from __future__ import annotations

from typing import Any

import pytorch
import torch
import transformers
from production import _OpenLoop


class Generate(_OpenLoop):
    """GPT-2 with random weights: eight tokens for each of four sequences, token by token."""

    TOKENS, PROMPT, BATCH, VOCABULARY = 8, 64, 4, 8192

    def __init__(self) -> None:
        self.about = pytorch.start()
        self.about["versions"]["transformers"] = transformers.__version__
        config = transformers.GPT2Config(
            vocab_size=self.VOCABULARY, n_positions=256, bos_token_id=0, eos_token_id=None, pad_token_id=0
        )
        model: Any = transformers.GPT2LMHeadModel(config)
        self._model: Any = model.to(device="cuda", dtype=torch.bfloat16).eval()
        self._prompts = pytorch.token_batches(self.VOCABULARY, self.BATCH, self.PROMPT - 1, 16)
        self._mask = torch.ones(self.BATCH, self.PROMPT, dtype=torch.int64, device="cuda")
        for number in range(3):
            self.request(number)

    def request(self, number: int) -> bytes:
        with torch.inference_mode():
            tokens = self._model.generate(
                input_ids=self._prompts[number % len(self._prompts)],
                attention_mask=self._mask,
                max_new_tokens=self.TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
        return pytorch.bytes_of(tokens)

    def gpu_ms(self) -> float:
        """Generation waits for each token, so this adds up: the prompt's pass, and one token's for each other."""

        def queue(tokens: Any) -> Any:
            with torch.inference_mode():
                return self._model(input_ids=tokens, use_cache=False)

        prompt = self._prompts[0]
        first = pytorch.gpu_ms(lambda: queue(prompt))
        return first + (self.TOKENS - 1) * pytorch.gpu_ms(lambda: queue(prompt[:, :1]))
