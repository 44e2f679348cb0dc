"""What stays in memory for as long as a process works."""

import gc


def set_loaded_modules_aside() -> None:
    """Let the garbage collector pass over everything that is there before the work begins.

    Dagster alone is 180,000 objects that stay; looking at what stays again and again was a tenth of
    a drain's processor time.
    """
    gc.collect()
    gc.freeze()
