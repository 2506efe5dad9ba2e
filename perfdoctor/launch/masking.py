"""Secrets out of a command line before it is recorded: `--api-key ***`, `WANDB_API_KEY=***`, `https://me:***@host`.

A secret is known by the name in front of it or, where services give theirs a shape, by itself. In doubt a value is
masked: a report that lost one argument does little harm. Arguments that training jobs are full of must survive,
though (`--tokenizer bert`, `--max-tokens 512`, `--pad-token "[PAD]"`), or nobody could tell two runs apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"


_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
"""`wandb_api-key`, `apiKey` and `APIKey` in words; names are looked at as `wandb-api-key`."""

_NAME = re.compile(
    r"""
    (?:.*-)?(?:
      # --db-password asks for a secret, --password-file does not; PGPASSWORD is written without a hyphen
      [a-z]*(?:password|passwd|passphrase|apikey|authtoken|accesstoken)s?
    | passcode | (?:user)?pwd | secrets? | auth | authorization | authentication | jwt | bearer
    | creds? | credentials? | cookie | (?:secret|access|private|auth)key | apitoken
      # --api-key is one, --label-key and --sort-key are not
    | (?:api|access|secret|private|auth|encryption|signing|master|account|storage|license|service|client|shared
        |wandb|comet|neptune|openai|anthropic|hf|huggingface|azure|clearml|mlflow)-keys?
    | access-key-id                         # half of AWS's pair
      # --pad-token is vocabulary, --hf-token is not; --api-tokens are secrets, --max-tokens a number
    | (?<![a-z0-9]-)token
    | (?!(?:pad|eos|bos|unk|sep|cls|mask|special|image|video|audio|stop|start|end|begin|prefix|suffix|max|min|per|num
        |new|next|last|first|class|time|dist|distill|distillation|register|prompt|trigger|placeholder|initializer
        |instance|separator|decoder|encoder|boundary|newline|blank|space|word|tool|think|thinking)-)[a-z0-9]+-token
    | (?:api|auth|access|bearer|refresh|hf|session)-tokens
    | (?<![a-z0-9]-)pass
    | (?!(?:forward|backward|num|single|per|one|multi|first|second)-)[a-z0-9]+-pass
    )(?:-(?:value|string|str|text|plain|header|[0-9]+))*   # --token-value: still the secret itself
    """,
    re.VERBOSE,
)
"""Names whose value is a secret."""
_SWITCH = re.compile(r"(?:use|no|with|without|has|enable|disable|requires?|needs|skip|is)-.*")
"""`--use-auth-token` takes no value, or True."""
_LIST = re.compile(r".*(?:passwords|secrets|keys|tokens)")
_BY_FILE = re.compile(
    r"(?:.*-)?(?:creds?|credentials?|cookie|(?:private|signing|encryption|service|client|license)-key)"
)
"""Usually given as the file that holds them: `--credentials key.json`."""

_HARMLESS = re.compile(r"(?:|true|false|yes|no|on|off|none|null|\*\*\*|\$\w+|\$\{[^}]*\})", re.IGNORECASE)
"""Values that give nothing away: switches, and variables that are named rather than expanded."""
_PATH = re.compile(r"(?:~|\.{1,2})?/[\w./ -]*|[\w./-]+\.(?:json|ya?ml|pem|key|crt|txt|toml|ini|env)", re.ASCII)
_OPTION = re.compile(r"--[A-Za-z][\w.-]*(?:=.*)?|-[A-Za-z]{1,3}", re.ASCII | re.DOTALL)
"""What follows a secret's name and is not its value."""

_ASSIGNED = re.compile(r"(?P<name>[-+~]*[A-Za-z_][\w.-]*)=(?P<value>.*)", re.ASCII | re.DOTALL)
"""A whole argument: `--token=x`, `WANDB_API_KEY=x`, Hydra's `+logger.api_key=x`."""
_NAMED = re.compile(
    r"(?<![\w.+~@-])(?<!://)(?P<name>[-+~]*[A-Za-z_][\w.-]*)\\?[\"']?(?:\s*[=:]\s*|(?P<gap>\s+))", re.ASCII
)
"""A name inside an argument: a shell line, JSON, a header, a URL's query, a connection string."""
_VALUE = re.compile(
    r"""
    "(?:[^"\\]|\\.)*(?:"|\Z)            # an open quote hides all the rest
    | \\"(?:[^"\\]|\\(?!").)*(?:\\"|\Z) # JSON inside JSON
    | '[^']*(?:'|\Z)
    | (?:(?:bearer|basic)\s+)?(?:(?!,\s*["'\w.-]+\s*[=:])[^\s"'&;}\]])+
    """,
    re.ASCII | re.IGNORECASE | re.DOTALL | re.VERBOSE,
)

_START = r"(?<![A-Za-z0-9])"
_SHAPES = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            _START + r"hf_[A-Za-z0-9]{16,}",
            _START + r"gh[opsur]_[A-Za-z0-9]{16,}",
            _START + r"github_pat_\w{20,}",
            _START + r"glpat-[\w-]{16,}",
            # The run without hyphens tells a key from a name such as sk-learn-random-forest.
            r"(?<![\w-])sk-(?=[\w-]*[A-Za-z0-9]{16})[\w-]+",
            _START + r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
            _START + r"xox[a-z]-[A-Za-z0-9-]{8,}",
            _START + r"xapp-[A-Za-z0-9-]{8,}",
            _START + r"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}(?![A-Za-z0-9])",
            _START + r"AIza[\w-]{30,}",
            _START + r"ya29\.[\w-]{16,}",
            _START + r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+",
            _START + r"(?:npm_|r8_|dop_v1_|wandb_v\d_|dckr_pat_|nvapi-|pypi-|dapi)[\w-]{30,}",
        )
    ),
    re.ASCII | re.DOTALL,
)
_BEARER = re.compile(r"\b(bearer|basic)(\s+)(?=\S*[0-9=._])[\w.~+/=-]{12,}", re.ASCII | re.IGNORECASE)
_URL_USER = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://)([^\s/:@\"']*)(:[^\s/\"']*)?@", re.ASCII)
_URL_SIGNATURE = re.compile(r"([?&](?:sig|(?:X-Amz-|X-Goog-)?(?:Signature|Credential))=)[^&\s\"']+", re.IGNORECASE)

_HOME = re.compile(r"(?<![\w.~-])/(?:(?:home|Users|export/home)/[^/\s:\"']+|root(?![\w.-]))")


def masked(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments, as many as before, with everything that looks like a secret replaced by `***`."""
    shown: list[str] = []
    waiting = ""  # the name of the option whose value comes next
    for argument in argv:
        if waiting and not _OPTION.fullmatch(argument) and argument != "--":
            shown.append(_mask_value(waiting, argument))
            if not _LIST.fullmatch(_words(waiting)):
                waiting = ""
            continue
        waiting = argument if _is_option_for_secret(argument) else ""
        shown.append(_mask_argument(argument))
    return tuple(shown)


def without_identity(text: str, host: str = "") -> str:
    """Text that a job has made, without secrets, with `~` for anybody's home directory, and without the machine's
    name."""
    text = _HOME.sub("~", _mask_argument(text))
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", MASK, text) if host else text


def _is_option_for_secret(argument: str) -> bool:
    """Whether the next argument is a secret."""
    return bool(re.fullmatch(r"--?[A-Za-z][\w.-]+", argument, re.ASCII)) and _takes_secret(argument)


def _takes_secret(name: str) -> bool:
    """Whether an option of this name is followed by a secret, rather than being a switch."""
    return _asks_for_secret(name) and not _SWITCH.fullmatch(_words(name))


def _asks_for_secret(name: str) -> bool:
    """Whether what belongs to this name is a secret."""
    # Every shell has PWD and OLDPWD, which hold directories.
    return name not in ("PWD", "OLDPWD") and _NAME.fullmatch(_words(name)) is not None


def _words(name: str) -> str:
    return "-".join(_WORD.findall(name)).lower()


def _mask_value(name: str, value: str) -> str:
    """The value of a name that asks for a secret."""
    # For most names even a slash in front may belong to the secret.
    by_file = _BY_FILE.fullmatch(_words(name)) and _PATH.fullmatch(value)
    return value if by_file or _HARMLESS.fullmatch(value) else MASK


def _mask_argument(argument: str) -> str:
    """One argument on its own."""
    whole = _ASSIGNED.fullmatch(argument)
    if whole and _asks_for_secret(whole["name"]):
        return f"{whole['name']}={_mask_value(whole['name'], whole['value'])}"
    return _mask_named(_mask_shapes(argument))


def _mask_shapes(text: str) -> str:
    """Secrets that are known by their look."""
    text = _SHAPES.sub(MASK, text)
    text = _URL_SIGNATURE.sub(rf"\g<1>{MASK}", text)
    text = _BEARER.sub(rf"\g<1>\g<2>{MASK}", text)
    return _URL_USER.sub(_mask_user, text)


def _mask_user(url: re.Match[str]) -> str:
    scheme, user, password = url[1], url[2], url[3]
    # https://TOKEN@github.com: a name that long and mixed is none.
    if len(user) >= 16 and re.search(r"[0-9]", user) and re.fullmatch(r"[\w-]+", user, re.ASCII):
        user = MASK
    if password and password != ":":
        password = f":{MASK}"
    return f"{scheme}{user}{password or ''}@"


def _mask_named(text: str) -> str:
    """Values of secret names inside a longer argument."""
    parts: list[str] = []
    done = 0
    for found in _NAMED.finditer(text):
        name = found["name"]
        is_named = name.startswith("-") and _takes_secret(name) if found["gap"] else _asks_for_secret(name)
        value = _VALUE.match(text, found.end()) if is_named and found.start() >= done else None
        if value is None or (found["gap"] and _OPTION.fullmatch(value[0])):
            continue
        quote = re.match(r"\\?[\"']", value[0])
        inner = value[0][quote.end() : -quote.end()] if quote else value[0]
        edge = quote[0] if quote else ""
        parts += (text[done : found.end()], edge, _mask_value(name, inner), edge)
        done = value.end()
    return "".join((*parts, text[done:]))
