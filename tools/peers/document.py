def write(results, verdicts, path): pass
