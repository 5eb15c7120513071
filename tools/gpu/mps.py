"""NVIDIA's Multi-Process Service, whose server lets the kernels of several processes run beside one another."""
import contextlib
import os
import subprocess
import tempfile

QUIT_SECONDS = 10


@contextlib.contextmanager
def daemon(control):
    """A daemon of our own, known to those alone who have the environment that is given; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        own = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        # In the foreground: it is ours to end. Its servers are started by it, for the first client.
        process = subprocess.Popen([control, "-f"], env=os.environ | own, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            yield own
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([control], env=os.environ | own, input="quit\n", text=True, capture_output=True, timeout=QUIT_SECONDS, check=False)
                process.wait(QUIT_SECONDS)
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
