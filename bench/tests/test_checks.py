"""Tests of how ./test counts what tests print."""

import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "test"

LOG = """\
running 5 tests
test fast ... ok
test slow ... ignored, long: 1000 faults
test old ... ignored
skipped: one::needs_two_cpus: this machine has one CPU
test one::needs_two_cpus ... ok
test alone ... skipped in part: alone: this machine lacks avx512f
ok
test result: ok. 3 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
10 passed, 2 failed, 2 skipped
2 skipped: table.md says why
"""


class Counts(unittest.TestCase):
    def test_what_this_machine_cannot_run_is_skipped_and_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            log, reasons = Path(folder) / "log", Path(folder) / "reasons"
            log.write_text(LOG)
            command = f'reasons={reasons}; . <(sed -n "/^counts()/,/^}}/p" {SCRIPT}); counts {log}'
            done = subprocess.run(
                ["bash", "-c", command], check=True, stdout=subprocess.PIPE, text=True
            )
            # Of seven that passed for cargo one was skipped.
            self.assertEqual(done.stdout, "16 3 6\n")
            self.assertEqual(
                sorted(reasons.read_text().splitlines()),
                ["long: 1000 faults", "no reason given"]
                + ["table.md says why"] * 2
                + ["this machine has one CPU", "this machine lacks avx512f"],
            )


if __name__ == "__main__":
    unittest.main()
