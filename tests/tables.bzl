"""Functions that the macros of tests share: rows for names that begin alike."""

def longest_prefix(path, table):
    """The row for a path: the longest name that it begins with, as a file or as words."""
    best = ""
    for prefix in table:
        if len(prefix) > len(best) and path[:len(prefix) + 1] in [prefix + "/", prefix + "_"]:
            best = prefix
    return best

def unique(names):
    """The names, each once."""
    return list({name: None for name in names}.keys())
