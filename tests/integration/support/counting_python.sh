#!/bin/sh
# The interpreter of a counted run: one line per module process, then the real Python.
echo x >>"$GPUSHARE_COUNT_FILE"
exec "$GPUSHARE_REAL_PYTHON" "$@"
