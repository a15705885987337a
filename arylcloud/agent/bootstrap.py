"""The boot stub: POSIX sh, far below the smallest user-data limit (AWS: 16 KB), no secrets.

It checks for Python, fetches the runtime (``runtime.py``), verifies its digest, unpacks it and runs
the agent; when the agent ends, for whatever reason (SIGKILL too), the machine ends: a machine without
an agent would be paid for and do nothing. So does one that is booted again, where its cloud starts a stub
once (``ARYL_CLOUD_INIT``). Everything that it says goes to ``boot.log`` in the machine's folder, and to the
console.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

from arylcloud.checkpoint.store import file_path
from arylcloud.core.errors import UsageError
from arylcloud.core.protocol import LOGS_PREFIX, boot_stream

USER_DATA_BYTES = 12_000
"""Ours; AWS takes 16 KB."""
RUNTIME_BYTES = 400_000_000
"""Unpacked."""
TRIES = 8
"""Half a minute: a web server is away for long, or the link is no good."""
FILE_TRIES = 34
"""Five minutes, as the agent waits for its store (``opening.STORE_WAIT_S``): a disk may be mounted late."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")

# What cloud-init finds in scripts/per-boot it runs at each boot, before user data: so not at this one. Only
# where this stub is the machine's user data: never on a host on which a machine is but a process. Whoever
# makes an image of the machine has the hook in it: on any other instance it only removes itself.
_STUB = """\
#!/bin/sh
# arylcloud: fetches and starts the agent of one machine. Holds no secrets.
umask 077
[ "$PWD" = / ] && mkdir -p /opt/arylcloud && cd /opt/arylcloud
@ENV@
end() {
  [ -n "$ARYL_POWEROFF" ] && sh -c "$ARYL_POWEROFF"
  exit "$1"
}
say() { echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $*" | tee -a boot.log >&2; }
fail() {
  say "$*"
  if [ -n "$ARYL_BOOT_LOG_DIR" ]; then
    mkdir -p "$ARYL_BOOT_LOG_DIR" && cp boot.log "$ARYL_BOOT_LOG_DIR/00000001.log"
  fi
  end 1
}
c="$ARYL_CLOUD_INIT"
q="grep -qswF '$ARYL_LEASE_ID' '$c/instance/user-data.txt'"
if [ -n "$c" ] && eval "$q"; then
  c="$c/scripts/per-boot" && mkdir -p "$c" && c="$c/arylcloud" &&
    printf '%s\n' '#!/bin/sh' "$q ||" '{ rm -f "$0"; exit; }' "$ARYL_POWEROFF" >"$c" && chmod 700 "$c" ||
    say "no reboot would end this machine"
fi
command -v python3 >/dev/null 2>&1 ||
  fail "arylcloud needs Python 3.11 or newer, and this machine's image has no python3"
cat >boot.py <<'ARYL_BOOT'
@FETCH@ARYL_BOOT
problem=$(python3 -S boot.py 2>&1) || fail "$problem"
export ARYL_USER_PYTHONPATH="$PYTHONPATH" PYTHONPATH="$PWD/runtime/lib-$(uname -m):$PWD/runtime/lib"
python3 -s -S -P -m arylcloud.agent 2>>boot.log
code=$?
[ "$code" = 0 ] || say "the agent ended with exit code $code"
end "$code"
"""

# Parses on every Python 3, so that an old one gets its one clear line. No dollar sign, no backtick.
_FETCH = """\
import sys
if sys.version_info < (3, 11):
    have = "%d.%d" % sys.version_info[:2]
    sys.exit("arylcloud needs Python 3.11 or newer, and this machine's image has " + have)
import hashlib, os, shutil, stat, time, zipfile
url, want = os.environ["ARYL_RUNTIME_URL"], os.environ["ARYL_RUNTIME_SHA256"]
boot = os.environ["ARYL_BOOT_URL"]
limit = @LIMIT@
def fetch(url):
    if url.startswith("file://"):
        from urllib.parse import unquote
        with open(unquote(url[7:]), "rb") as file:
            return file.read(limit + 1)
    from urllib.request import urlopen
    with urlopen(url, timeout=30) as answer:
        return answer.read(limit + 1)
wait = 0.5
for attempt in range(@TRIES@):
    try:
        if boot:
            import json
            told = json.loads(fetch(boot))
            url = told["runtime_url"]
            with open("lent.json", "w") as file:
                json.dump(told["lent"], file)
            boot = ""
        data = fetch(url)
        found = hashlib.sha256(data).hexdigest()
        if found == want:
            break
        problem = "its sha256 is %s, not %s" % (found[:12], want[:12])
    except Exception as error:
        problem = "%s: %s" % (type(error).__name__, error)
    time.sleep(wait)
    wait = min(10, wait * 2)
else:
    sys.exit("arylcloud's runtime cannot be fetched: " + problem)
with open("runtime.zip", "wb") as file:
    file.write(data)
shutil.rmtree("runtime.part", ignore_errors=True)
with zipfile.ZipFile("runtime.zip") as archive:
    members = archive.infolist()
    if sum(m.file_size for m in members) > limit:
        sys.exit("arylcloud's runtime is larger than %d bytes" % limit)
    for m in members:
        plain = stat.S_IFMT(m.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
        parts = m.filename.split("/")
        if ".." in parts or parts[0] == "" or chr(92) in m.filename or not plain:
            sys.exit("arylcloud's runtime holds the unsafe name " + repr(m.filename))
    archive.extractall("runtime.part")
shutil.rmtree("runtime", ignore_errors=True)
os.rename("runtime.part", "runtime")
os.remove("runtime.zip")
"""


def user_data(
    *,
    store_uri: str,
    prefix_uri: str,
    runtime_sha256: str,
    runtime_url: str,
    job_id: str,
    lease_id: str,
    journal_id: str,
    until_s: float | None,
    metadata: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    fetch_tries: int | None = None,
    boot_url: str | None = None,
) -> str:
    """The stub for one machine.

    ``runtime_url``: where the zip of ``runtime.build_runtime`` lies (``https://``, ``http://`` or
    ``file://``); on a cloud a signed URL. ``boot_url``: instead of it, a link to this machine's ``BootDoc``.
    ``until_s``: wall seconds. ``metadata``: how notices come, ``{"protocol": "ec2" | "gce" | "azure" |
    "none", "url", "poll_s", "lead_s"}``; what is absent is the machine's own setting, or EC2's. ``env``: more
    for the agent (``ARYL_GPUS``, ``ARYL_POWEROFF``: see ``config.py``) and for every command of the user.
    Raises UsageError for a digest, URL or name
    that is none, and when the stub gets too long.
    """
    if not _SHA256.fullmatch(runtime_sha256):
        raise UsageError(f"{runtime_sha256!r} is not a SHA-256 digest")
    if urlsplit(boot_url or runtime_url).scheme not in ("https", "http", "file"):
        found = urlsplit(boot_url or runtime_url)._replace(query="").geturl()
        raise UsageError(f"{found!r} cannot be fetched by a machine", hint="sign it as an https:// URL")
    names = {
        **(env or {}),
        "ARYL_STORE_URI": store_uri,
        "ARYL_PREFIX_URI": prefix_uri,
        "ARYL_JOB_ID": job_id,
        "ARYL_LEASE_ID": lease_id,
        "ARYL_JOURNAL_ID": journal_id,
        "ARYL_UNTIL_S": "" if until_s is None else repr(float(until_s)),
        "ARYL_RUNTIME_SHA256": runtime_sha256,
        "ARYL_RUNTIME_URL": "" if boot_url else runtime_url,
        "ARYL_BOOT_URL": boot_url or "",
        "ARYL_BOOT_LOG_DIR": _boot_log_folder(prefix_uri, lease_id),
    }
    for key, name in _METADATA.items():
        if key in (metadata or {}):
            names[name] = str((metadata or {})[key])
    lines = []
    for name, value in sorted(names.items()):
        if not _NAME.fullmatch(name) or "\0" in value:
            raise UsageError(f"{name!r} cannot be set in an environment")
        lines.append(f"export {name}={shlex.quote(value)}")
    usual = FILE_TRIES if (boot_url or runtime_url).startswith("file:") else TRIES
    tries = usual if fetch_tries is None else fetch_tries
    fetch = _FETCH.replace("@LIMIT@", str(RUNTIME_BYTES)).replace("@TRIES@", str(tries))
    stub = _STUB.replace("@FETCH@", fetch).replace("@ENV@", "\n".join(lines))
    if len(stub.encode()) > USER_DATA_BYTES:
        raise UsageError(
            f"the boot stub has {len(stub.encode())} bytes, more than {USER_DATA_BYTES}",
            hint="set fewer or shorter variables",
        )
    return stub


_METADATA = {
    "protocol": "ARYL_METADATA",
    "url": "ARYL_METADATA_URL",
    "poll_s": "ARYL_METADATA_POLL_S",
    "lead_s": "ARYL_METADATA_LEAD_S",
}


def _boot_log_folder(prefix_uri: str, lease_id: str) -> str:
    """Where a stub that cannot even start an agent leaves its log: only a folder can be written
    without one."""
    if not prefix_uri.startswith("file:"):
        return ""
    return str(file_path(prefix_uri) / LOGS_PREFIX / boot_stream(lease_id))
