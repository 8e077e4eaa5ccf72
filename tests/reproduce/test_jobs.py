"""``python -m reproduce --jobs 2``: work that other processes can find."""

import pickle
import subprocess
import sys

from reproduce.tasks import tasks

ASK = """
import pickle, runpy, sys
import concurrent.futures as futures

class Asked(futures.ProcessPoolExecutor):
    def submit(self, task, *arguments):
        sys.stdout.buffer.write(pickle.dumps(task) + b"|end|")
        future = futures.Future()
        future.set_result("done")
        return future

futures.ProcessPoolExecutor = Asked
sys.argv = ["reproduce", "figure1", "figure2", "--jobs", "2", "--out", sys.argv[1]]
import reproduce.results
reproduce.results.write_results = lambda *arguments: None
runpy.run_module("reproduce", run_name="__main__", alter_sys=True)
"""


def test_tasks_can_be_sent_to_other_processes(tmp_path):
    """What the command submits is found here, in another process, by its name: functions of ``__main__`` are not."""
    ran = subprocess.run([sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    sent = [pickle.loads(part) for part in ran.stdout.split(b"|end|")[:-1]]
    assert [task.func for task in sent] == [task.func for task in tasks(["figure1", "figure2"], "reduced", tmp_path)]
    assert len(sent) == 2
