"""One operation of agno's checkpoints on S3, as a process: put FILES, or restore the last put into TO."""

import hashlib
import pickle
import shutil
import sys
from pathlib import Path

from agno.sandbox.checkpoint import CheckpointArchive
from agno.sandbox.s3 import S3CheckpointStore

verb, endpoint, bucket, prefix, files, to = sys.argv[1:]
store = S3CheckpointStore(bucket, prefix=prefix, endpoint_url=endpoint, region="us-east-1")
archive = CheckpointArchive()
last = Path("last.pickle")
if verb == "put":
    turn = int(Path("turn").read_text()) + 1 if Path("turn").exists() else 1
    Path("turn").write_text(str(turn))
    state = {
        "binding": {"agent_id": "a", "session_id": "s", "run_id": f"run-{turn}", "execution_id": f"{turn:032x}", "generation": 1},
        "result_sha256": hashlib.sha256(str(turn).encode()).hexdigest(),
    }
    native = Path("native")
    native.mkdir(exist_ok=True)
    made = Path(f"{turn}.tar.gz")
    archive.capture({"workspace": Path(files), "native": native}, made, state=state)
    last.write_bytes(pickle.dumps(store.put(made)))
    made.unlink()
else:
    with store.open_archive(pickle.loads(last.read_bytes())) as path:
        archive.restore(path, Path("restored"))
    shutil.move("restored/workspace", to)
    shutil.rmtree("restored")
