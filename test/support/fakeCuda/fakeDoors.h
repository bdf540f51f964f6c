/* How tests talk to the fake driver: in the process by calls, into others by the environment. */
EXPORT void fakeCudaFail(const char *call, int result, int after) {
  pthread_mutex_lock(&mutex);
  failLater(call, result, after, INT_MAX);
  pthread_mutex_unlock(&mutex);
}
EXPORT void fakeCudaSet(const char *what, long value) {
  if (!strcmp(what, "held")) {
    pthread_mutex_lock(&mutex);
    isHeld = value;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&mutex);
  }
  if (!strcmp(what, "driverVersion")) driverVersion = value;
  if (!strcmp(what, "devices")) deviceCount = value;
  if (!strcmp(what, "totalBytes")) totalBytes = value;
  if (!strcmp(what, "failDevice")) failDevice = value;
  if (!strcmp(what, "peers")) peers = value;
  if (!strcmp(what, "mapsMemory")) mapsMemory = value;
  if (!strcmp(what, "order")) order = (uint64_t)value * 0x9e3779b97f4a7c15u;
}
/* Forgets failures and the log, and revives a dead context; handles stay counted. */
EXPORT void fakeCudaReset(void) {
  pthread_mutex_lock(&mutex);
  drainAll();
  failureCount = 0;
  memset(sticky, 0, sizeof sticky);
  logBytes = 0;
  logText[0] = 0;
  now = 0;
  driverVersion = 12040, deviceCount = 1, totalBytes = 1 << 30, peers = 1, mapsMemory = 1, order = 0, failDevice = -1;
  pthread_mutex_unlock(&mutex);
}
EXPORT const char *fakeCudaLog(void) { return logText; }
/* Retained contexts, allocations, pinned allocations, streams, events and modules that were not given back. */
EXPORT int fakeCudaLive(void) { return liveHandles; }

__attribute__((constructor)) static void readEnvironment(void) {
  char *text = getenv("FAKE_CUDA");
  if (!text) return;
  char *copy = strdup(text), *rest = NULL;
  for (char *part = strtok_r(copy, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
    char name[128];
    long value = 0;
    int failure = 0, after = 1, times = INT_MAX, pointer = 0;
    if (sscanf(part, "fail:%63[^:]:%d:%d:%d", name, &failure, &after, &times) >= 2) {
      failLater(name, failure, after, times);
    } else if (sscanf(part, "nan:%127[^:]:%d", name, &pointer) == 2) {
      if (spoiltCount < 16) {
        snprintf(spoilt[spoiltCount].kernel, sizeof spoilt[0].kernel, "%s", name);
        spoilt[spoiltCount++].pointer = pointer;
      }
    } else if (!strncmp(part, "once=", 5)) snprintf(onceMarker, sizeof onceMarker, "%s", part + 5);
    else if (!strncmp(part, "ipc=", 4)) snprintf(ipcFolder, sizeof ipcFolder, "%s", part + 4);
    else if (!strncmp(part, "host=", 5)) fakeCudaHost(part + 5);
    else if (sscanf(part, "%63[^=]=%ld", name, &value) == 2) fakeCudaSet(name, value);
  }
  free(copy);
}
