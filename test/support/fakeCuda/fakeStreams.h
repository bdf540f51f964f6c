/*
 * The fake driver's streams. Each executes what it was given when somebody waits for it, or, with an order set, at any
 * time in an order that nobody would choose: one stream is preferred for a while, then another, and what is held back
 * by nothing may overtake everything else.
 */
static void drainTo(Event *event, long generation);

static void execute(Command *command) {
  switch (command->kind) {
    case COPY:
      now += 0.125;
      if (command->isUpload) unspoil();
      if (!sticky[command->device])
        memmove(command->target, command->snapshot ? command->snapshot : command->source, command->bytes);
      break;
    case FILL:
      now += 0.25;
      if (!sticky[command->device]) memset(command->target, command->byte, command->bytes);
      break;
    case RECORD:
      command->event->at = now;
      command->event->reached = command->generation;
      break;
    case WAIT:
      drainTo(command->event, command->generation);
      break;
    case LAUNCH:
      now += 1;
      if (!sticky[command->device]) sticky[command->device] = runKernel(command);
      break;
  }
  free(command->snapshot);
  free(command->arguments);
  free(command);
}

static uint64_t order; /* 0: as late as possible; else the state of a generator */

static unsigned draw(unsigned below) {
  order ^= order << 13;
  order ^= order >> 7;
  order ^= order << 17;
  return (unsigned)((order >> 11) % below);
}

static int isRunnable(const Stream *stream) {
  if (!stream || stream->head == stream->tail) return 0;
  const Command *next = stream->queue[stream->head % MOST_QUEUED];
  return next->kind != WAIT || next->event->reached >= next->generation;
}

/* Executes one command of some stream; 0 where all wait or are empty. */
static int step(void) {
  static int preferred;
  if (draw(8) == 0) preferred = (int)draw(MOST_STREAMS);
  for (int i = 0; i < MOST_STREAMS; i++) {
    Stream *stream = streams[(preferred + i) % MOST_STREAMS];
    if (!isRunnable(stream)) continue;
    execute(stream->queue[stream->head++ % MOST_QUEUED]);
    return 1;
  }
  if (!isRunnable(&legacy)) return 0;
  execute(legacy.queue[legacy.head++ % MOST_QUEUED]);
  return 1;
}

/* Executes what a stream was given, up to a record of an event or, without one, all of it. */
static void drain(Stream *stream, const Event *event, long generation) {
  if (stream->isDraining) {
    fprintf(stderr, "fake driver: streams wait for each other in a circle\n");
    abort();
  }
  while (order && stream->head < stream->tail && (event == NULL || event->reached < generation)) {
    if (step()) continue;
    fprintf(stderr, "fake driver: what is waited for is never executed\n");
    abort();
  }
  stream->isDraining = 1;
  while (stream->head < stream->tail && (event == NULL || event->reached < generation))
    execute(stream->queue[stream->head++ % MOST_QUEUED]);
  stream->isDraining = 0;
}

static void drainTo(Event *event, long generation) {
  if (event->reached < generation) drain(event->stream, event, generation);
}

static void drainAll(void) {
  drain(&legacy, NULL, 0);
  for (int i = 0; i < MOST_STREAMS; i++) if (streams[i]) drain(streams[i], NULL, 0);
}

static Command *push(void *handle, int kind) {
  Stream *stream = handle ? handle : &legacy;
  while (order && draw(3) == 0 && step()) {}
  if (stream->tail - stream->head == MOST_QUEUED) drain(stream, NULL, 0);
  Command *command = calloc(1, sizeof *command);
  command->kind = kind;
  command->device = stream->device;
  stream->queue[stream->tail++ % MOST_QUEUED] = command;
  return command;
}
