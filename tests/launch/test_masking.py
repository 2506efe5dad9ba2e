from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.launch.masking import masked, without_identity

# Put together here, so that no scanner takes a made-up secret for a real one.
HF = "hf_" + "aB3dE" * 7
GITHUB = "ghp_" + "x9Yz" * 9
OPENAI = "sk-" + "proj-" + "A1b2C3d4" * 5
SLACK = "xoxb-" + "123456789012-" + "abcdefABCDEF"
AWS_ID = "AKIA" + "ABCDEFGHIJKLMNOP"
AWS_SECRET = "/abcDEF123" * 4
GOOGLE = "AIza" + "Sy0aB-_" * 5
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJl-_x"


@pytest.mark.parametrize(
    "name",
    [
        "--api-key",
        "--api_key",
        "--apikey",
        "--apiKey",
        "--API-KEY",
        "-api-key",
        "--wandb-api-key",
        "--wandb.api_key",
        "--token",
        "--hf-token",
        "--hub_token",
        "--access-token",
        "--token-value",
        "--password",
        "--db-password",
        "--passwd",
        "--passphrase",
        "--pass",
        "--pwd",
        "--secret",
        "--client-secret",
        "--auth",
        "--basic-auth",
        "--aws-access-key-id",
        "--aws-secret-access-key",
        "--secret-key",
        "--encryption-key",
        "--credentials",
        "--password2",
    ],
)
def test_the_value_of_an_option_that_asks_for_a_secret_is_masked(name: str) -> None:
    assert masked(("train.py", name, "Hunter2,x;y z", "--lr", "0.1")) == ("train.py", name, "***", "--lr", "0.1")
    assert masked((f"{name}=Hunter2,x;y z", "--lr")) == (f"{name}=***", "--lr")


@pytest.mark.parametrize(
    "argv",
    [
        "--tokenizer bert",
        "--tokenizer=bert-base-uncased",
        "--max-tokens 512",
        "--max-token 512",
        "--num-tokens=3",
        "--tokens-per-sample 1024",
        "--token-dropout 0.1",
        "--token-type bpe",
        "--pad-token [PAD]",
        "--eos_token=</s>",
        "--mask-token-id 103",
        "--author bob",
        "--authors=bob,alice",
        "--auth-method none",
        "--secret-santa bob",
        "--secret-name prod/wandb",
        "--password-file /run/secrets/db",
        "--token-path ~/.hf/token",
        "--api-key-env WANDB_API_KEY",
        "--private-key ~/.ssh/id_ed25519",
        "--credentials /etc/gcp/key.json",
        "--key image",
        "--label-key=label",
        "--num-key-value-heads 8",
        "--keys image label",
        "--forward-pass 2",
        "--passes=3",
        "--bypass x",
        "--compass north",
        "--keyboard us",
        "--seed 1234567890",
        "--lr 1e-4 --batch-size=64 -m package.train",
        "--revision 1f0e3dad99908345f7439f8ffabdffc4dbf0bf23",
        "--id 6fa459ea-ee8a-3ca4-894e-db77e160355e",
        "--data /data/imagenet/train --out ./runs/2030-01-01T10:00:00",
        "--model sk-learn-random-forest-1",
        "--model hf_internal/tiny-random-bert",
        "--init tcp://10.0.0.1:29500",
        "--store redis://auth:6379/0",
        "--repo https://github.com/me/repo.git@main",
        "--repo git@github.com:me/repo.git",
        "--data s3://bucket/path?versionId=3",
        "--pkg https://host:8080/path@v1.2",
        "PWD=/home/me",
        "OMP_NUM_THREADS=4",
        "model.d_model=512 optimizer.lr=0.1 +trainer.max_epochs=3",
        "torchrun --nproc-per-node 2 train.py",
        "--use-auth-token data/train",
        "--no-auth data/train",
        "--auth --lr 0.1",
        "--token -- train.py",
        "--token= --auth=true --password=none --secret $SECRET --api-key ${API_KEY}",
    ],
)
def test_ordinary_arguments_are_left_alone(argv: str) -> None:
    arguments = tuple(argv.split(" "))
    assert masked(arguments) == arguments


@pytest.mark.parametrize("secret", [HF, GITHUB, OPENAI, SLACK, AWS_ID, GOOGLE, JWT], ids=lambda secret: secret[:4])
@pytest.mark.parametrize("argument", ["{}", "--x={}", "a,{},b", "https://host/{}/x", "echo {} | cat", "{{'x': '{}'}}"])
def test_a_secret_of_a_known_shape_is_masked_wherever_it_stands(secret: str, argument: str) -> None:
    assert masked((argument.format(secret),)) == (argument.format("***"),)


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("WANDB_API_KEY=abc", "WANDB_API_KEY=***"),
        ("wandb_api_key=abc", "wandb_api_key=***"),
        ("AWS_SECRET_ACCESS_KEY=" + AWS_SECRET, "AWS_SECRET_ACCESS_KEY=***"),
        ("PGPASSWORD=a b&c", "PGPASSWORD=***"),
        ("MYSQL_PWD=abc", "MYSQL_PWD=***"),
        ("--env=WANDB_API_KEY=abc", "--env=WANDB_API_KEY=***"),
        ("+logger.wandb.api_key=abc", "+logger.wandb.api_key=***"),
        ("project=x,api_key=abc,name=y", "project=x,api_key=***,name=y"),
        ("https://me:pa:ss@host/x", "https://me:***@host/x"),
        ("https://:p@ss@host/x", "https://:***@host/x"),
        ("postgresql+psycopg2://me:pw@db:5432/runs", "postgresql+psycopg2://me:***@db:5432/runs"),
        ("https://0123456789abcdef0123@sentry.io/4", "https://***@sentry.io/4"),
        ("https://0123456789abcdef0123:x-oauth@host", "https://***:***@host"),
        ("git+ssh://git@github.com/me/x", "git+ssh://git@github.com/me/x"),
        ("https://h/x?a=1&token=abc&b=2", "https://h/x?a=1&token=***&b=2"),
        ("https://h/x?sv=1&sig=a%2Fb%3D", "https://h/x?sv=1&sig=***"),
        ("https://h/x?X-Amz-Signature=ab&x=1", "https://h/x?X-Amz-Signature=***&x=1"),
        ("AccountName=me;AccountKey=ab/c==;Suffix=x", "AccountName=me;AccountKey=***;Suffix=x"),
        ('{"api_key": "a b", "lr": 0.1}', '{"api_key": "***", "lr": 0.1}'),
        ('{"password": "a\\"b", "lr": 0.1}', '{"password": "***", "lr": 0.1}'),
        ('{"password": "never closed', '{"password": "***"'),
        ('{\\"password\\": \\"a b\\", \\"lr\\": 0.1}', '{\\"password\\": \\"***\\", \\"lr\\": 0.1}'),
        ("{password: abc, lr: 0.1}", "{password: ***, lr: 0.1}"),
        ("{'token': 'abc', 'max_tokens': 3}", "{'token': '***', 'max_tokens': 3}"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("X-Api-Key: abc", "X-Api-Key: ***"),
        ("Proxy: Basic dXNlcjpwYXNzd29yZA==", "Proxy: Basic ***"),
        ("a basic introduction", "a basic introduction"),
        ("PASSWORD=x python t.py --lr 1", "PASSWORD=***"),
        ("cd /x && TOKEN=abc python t.py --lr 1", "cd /x && TOKEN=*** python t.py --lr 1"),
        ("python t.py --api-key abc --lr 1", "python t.py --api-key *** --lr 1"),
        ("python t.py --api-key 'a b' --lr 1", "python t.py --api-key '***' --lr 1"),
        ("python t.py --tokenizer abc --author me", "python t.py --tokenizer abc --author me"),
        ("TOKEN=$TOKEN", "TOKEN=$TOKEN"),
        ("my secret plan: the password of the day", "my secret plan: the password of the day"),
    ],
)
def test_secrets_inside_an_argument_are_masked_and_nothing_else(argument: str, shown: str) -> None:
    assert masked((argument,)) == (shown,)


def test_a_private_key_is_masked_whole() -> None:
    kind = "RSA PRIVATE KEY"
    assert masked((f"x\n-----BEGIN {kind}-----\nabc\ndef\n-----END {kind}-----\ny",)) == ("x\n***\ny",)


def test_all_values_of_an_option_that_takes_several_secrets_are_masked() -> None:
    assert masked(("--api-keys", "a", "b", "--lr", "1")) == ("--api-keys", "***", "***", "--lr", "1")


def test_only_one_value_follows_any_other_option() -> None:
    assert masked(("--password", "a", "data", "--lr", "1")) == ("--password", "***", "data", "--lr", "1")


def test_a_secret_that_starts_with_a_hyphen_is_not_taken_for_an_option() -> None:
    assert masked(("--password", "-9x!", "--token", "-")) == ("--password", "***", "--token", "***")


def test_a_secret_that_starts_with_a_slash_is_not_taken_for_a_path() -> None:
    assert masked(("--aws-secret-access-key", AWS_SECRET)) == ("--aws-secret-access-key", "***")


def test_masking_twice_changes_nothing_more() -> None:
    once = masked(("--api-key", "abc", "TOKEN=x", f"https://me:pw@host/{HF}", '{"secret": "x"}'))
    assert masked(once) == once


def test_any_number_of_arguments_keeps_its_length() -> None:
    assert masked(()) == ()
    assert len(masked(("--token",))) == 1
    assert masked(("--token", "")) == ("--token", "")


def test_an_argument_with_bytes_that_are_not_text_is_kept() -> None:
    assert masked(("data\udcff\n",)) == ("data\udcff\n",)


@pytest.mark.timeout(60)  # a square of the length would take many minutes
@pytest.mark.parametrize("unit", ["a", "+", "-", "a-", "a,", ", ", " ", "=", "ab1/", "://", '\\"', "token=", "a b "])
def test_a_very_long_argument_takes_time_in_proportion(unit: str) -> None:
    argument = unit * (300_000 // len(unit))
    assert len(masked((argument, "token=" + argument, "{token: " + argument, "--x=" + argument))) == 4


# A command line is drawn, and a secret put somewhere into it.
NAMES = st.sampled_from(("--api-key", "--hf_token", "--dbPassword", "--client-secret", "--aws-access-key-id"))
VALUES = st.text(string.ascii_letters + string.digits + "+/=.,;:!@%^-_~", min_size=6, max_size=40).filter(
    lambda text: text[0] not in "-.~/" and text.lower() not in ("--",) and any(map(str.isdigit, text))
)
SHAPED = st.sampled_from((HF, GITHUB, OPENAI, SLACK, AWS_ID, GOOGLE, JWT))
ORDINARY = st.one_of(
    st.floats(1e-6, 10).map(lambda rate: f"--lr={rate}"),
    st.sampled_from(("--lr", "0.1", "train.py", "-m", "package.train", "--tokenizer", "bert", "--max-tokens", "512")),
    st.lists(st.text(string.ascii_lowercase + "._", min_size=1, max_size=8), min_size=1, max_size=4).map("/".join),
    st.from_regex(r"(?:model|data|optim)\.[a-z]{2,8}=[0-9]{1,4}", fullmatch=True),
)
ARGUMENTS = st.lists(ORDINARY, max_size=6).map(tuple)


@given(ARGUMENTS, NAMES, VALUES, ARGUMENTS)
def test_a_secret_behind_its_name_never_survives_and_everything_else_does(
    before: tuple[str, ...], name: str, secret: str, after: tuple[str, ...]
) -> None:
    assert masked((*before, name, secret, *after)) == (*before, name, "***", *after)
    assert masked((*before, f"{name}={secret}", *after)) == (*before, f"{name}=***", *after)


@given(ARGUMENTS, ORDINARY, st.sampled_from(("", " ", "=", "/", ",", '"')), SHAPED, ARGUMENTS)
def test_a_secret_of_a_known_shape_never_survives(
    before: tuple[str, ...], ordinary: str, gap: str, secret: str, after: tuple[str, ...]
) -> None:
    shown = masked((*before, f"{ordinary} {gap}{secret}{gap}", *after))
    assert all(secret not in argument for argument in shown)
    assert shown[: len(before)] == before and shown[len(before) + 1 :] == after


@given(ARGUMENTS)
def test_ordinary_arguments_survive(arguments: tuple[str, ...]) -> None:
    assert masked(arguments) == arguments


@given(st.lists(st.text(), max_size=5).map(tuple))
def test_any_text_is_masked_the_same_way_twice(arguments: tuple[str, ...]) -> None:
    once = masked(arguments)
    assert len(once) == len(arguments)
    assert masked(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/job/train.py(3): main", "~/job/train.py(3): main"),
        ("read '/Users/ann/x.csv'", "read '~/x.csv'"),
        ("/root/x.py and /rooted/x.py", "~/x.py and /rooted/x.py"),
        ("/opt/home/ann/x.py", "/opt/home/ann/x.py"),
        ("shard of node17:8 on node17", "shard of ***:8 on ***"),
        ("node17b and my-node17", "node17b and my-node17"),
        ("push --token abc123secret", "push --token ***"),
        ("Optimizer.step#Adam.step", "Optimizer.step#Adam.step"),
    ],
)
def test_who_and_where_are_taken_out_of_what_a_job_says(text: str, expected: str) -> None:
    assert without_identity(text, "node17") == expected
