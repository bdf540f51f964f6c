/* What the fake driver is told to do wrong: calls that fail or hang, kernels that leave NaN. */
static struct { char call[128]; int result, after, times; } failures[16];
static int failureCount;
static char onceMarker[256];
static struct { char kernel[128]; int pointer; float *at, before[16]; } spoilt[16];
static int spoiltCount;
static long failDevice = -1; /* the only device whose calls fail */

/* The next micro-batch begins without the NaN of the one before. */
static void unspoil(void) {
  for (int i = 0; i < spoiltCount; i++) {
    if (spoilt[i].at) memcpy(spoilt[i].at, spoilt[i].before, sizeof spoilt[i].before);
    spoilt[i].at = NULL;
  }
}

static void failLater(const char *call, int result, int after, int times) {
  if (failureCount == 16) return;
  snprintf(failures[failureCount].call, sizeof failures[0].call, "%s", call);
  failures[failureCount].result = result;
  failures[failureCount].times = times;
  failures[failureCount++].after = after;
}

/* Whether this process may fail: the first to ask, where there is a marker. */
static int mayFail(void) {
  static int isMine;
  if (!onceMarker[0] || isMine) return 1;
  const int file = open(onceMarker, O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file < 0) return 0;
  close(file);
  return isMine = 1;
}

static Result enter(const char *call, int needsContext) {
  for (int i = 0; i < failureCount; i++) {
    if (strcmp(failures[i].call, call) || (failDevice >= 0 && failDevice != deviceOf(currentContext)) ||
        --failures[i].after > 0 || failures[i].times <= 0 || !mayFail())
      continue;
    failures[i].times--;
    if (failures[i].result >= 0) return failures[i].result;
    for (;;) pause();
  }
  if (needsContext && !currentContext) return INVALID_CONTEXT;
  return needsContext ? deadOf() : OK;
}
