/* The fake driver's streams: each executes what it was given when somebody waits for it. */
static void drainTo(Event *event, long generation);

static void execute(Command *command) {
  switch (command->kind) {
    case COPY:
      now += 0.125;
      if (command->isUpload) unspoil();
      if (!sticky) memmove(command->target, command->snapshot ? command->snapshot : command->source, command->bytes);
      break;
    case FILL:
      now += 0.25;
      if (!sticky) memset(command->target, command->byte, command->bytes);
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
      if (!sticky) sticky = runKernel(command);
      break;
  }
  free(command->snapshot);
  free(command->arguments);
  free(command);
}

/* Executes what a stream was given, up to a record of an event or, without one, all of it. */
static void drain(Stream *stream, const Event *event, long generation) {
  if (stream->isDraining) {
    fprintf(stderr, "fake driver: streams wait for each other in a circle\n");
    abort();
  }
  stream->isDraining = 1;
  while (stream->head < stream->tail && (event == NULL || event->reached < generation)) execute(stream->queue[stream->head++ % MOST_QUEUED]);
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
  if (stream->tail - stream->head == MOST_QUEUED) drain(stream, NULL, 0);
  Command *command = calloc(1, sizeof *command);
  command->kind = kind;
  stream->queue[stream->tail++ % MOST_QUEUED] = command;
  return command;
}
