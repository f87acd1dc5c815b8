"""Which pods the API server asks the webhook about: those that may speak of GPUs. While no webhook answers, they are
refused, since they would run without a GPU or without limits; all other pods never wait for it."""

from __future__ import annotations

import re

from cotenant.kubernetes.webhook.mutation import DIALECTS

WORDS = f"^({'|'.join(re.escape(word) for dialect in DIALECTS for word in dialect.WORDS)})"
# In the Common Expression Language. The placer also looks at pods with claims that their authors wrote.
WITH_CLAIMS = " || object.spec.?resourceClaims.orValue([]).size() > 0"


def expression(has_placer: bool) -> str:
    said = f'exists(words, words.exists(word, word.matches(r"{WORDS}")))'
    pod = "[object.metadata.?annotations.orValue({}), object.metadata.?labels.orValue({})]"
    containers = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    resources = "[one.?resources.?limits.orValue({}), one.?resources.?requests.orValue({})]"
    made = f"{pod}.{said} || {containers}.exists(one, {resources}.{said})"
    return made + WITH_CLAIMS if has_placer else made
