// No test: the program for which the tests' precompiled header is built.
