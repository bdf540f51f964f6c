// A stand-in for NVRTC: same functions, made-up code. The version is fixed when it is compiled (-DMAJOR, -DMINOR);
// what a compilation does is asked for by words in its source:
//   FAIL    ends with a diagnostic of line 2       REFUSE  ends with another status than a compilation error
//   JUNK    gives code that is no ELF file         VAST    says that the code has 2^40 bytes
//   CRASH   ends the process
//   COUNT folder\n  leaves a file there, after a tenth of a second
//   MEET folder\n  waits there until two have met, threads or processes, and fails after four minutes alone
// A header with WRONG in it gives a diagnostic of its line 1.
// The code is an ELF header of NVIDIA's machine type, then the options, one a line, the headers, and the source.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#ifndef MAJOR
#define MAJOR 13
#endif
#ifndef MINOR
#define MINOR 0
#endif

struct program {
  char *name, *source, *headers, *wrong, *log, *cubin;
  size_t cubinBytes;
};

int nvrtcVersion(int *major, int *minor) {
#ifdef VERSION_STATUS
  return VERSION_STATUS;
#endif
  *major = MAJOR;
  *minor = MINOR;
  return 0;
}

const char *nvrtcGetErrorString(int status) {
  return status == 6 ? "NVRTC_ERROR_COMPILATION" : status == 5 ? "NVRTC_ERROR_INVALID_OPTION" : "NVRTC_ERROR_SCRIPTED";
}

int nvrtcCreateProgram(struct program **out, const char *source, const char *name, int headers, const char **texts,
                       const char **names) {
  if ((headers == 0) != (texts == NULL) || (headers == 0) != (names == NULL)) return 3;
  struct program *program = calloc(1, sizeof *program);
  size_t bytes = 1, at = 0;
  for (int i = 0; i < headers; i++) bytes += strlen(names[i]) + strlen(texts[i]) + 4;
  program->headers = calloc(1, bytes);
  for (int i = 0; i < headers; i++) {
    at += (size_t)sprintf(program->headers + at, "[%s]\n%s\n", names[i], texts[i]);
    if (strstr(texts[i], "WRONG")) program->wrong = strdup(names[i]);
  }
  program->name = strdup(name);
  program->source = strdup(source);
  program->log = strdup("");
  *out = program;
  return 0;
}

int nvrtcDestroyProgram(struct program **program) {
  free((*program)->name), free((*program)->source), free((*program)->log), free((*program)->cubin);
  free((*program)->headers), free((*program)->wrong);
  free(*program);
  *program = NULL;
  return 0;
}

// A real compiler recurses: this much stack must be there.
static int useStack(void) {
  volatile char deep[8 << 20];
  for (size_t i = 0; i < sizeof deep; i += 4096) deep[i] = 1;
  return deep[4096];
}

// Leaves a file named after this process and thread, and waits for another one.
static int meet(const char *source) {
  char folder[512], path[600];
  if (sscanf(strstr(source, "MEET"), "MEET %511[^\n]", folder) != 1) return 0;
  snprintf(path, sizeof path, "%s/%d.%d", folder, (int)getpid(), (int)gettid());
  close(open(path, O_CREAT | O_WRONLY, 0600));
  for (int i = 0; i < 24000; i++) {
    int count = 0;
    DIR *list = opendir(folder);
    if (list == NULL) return 0;
    while (readdir(list) != NULL) count++;
    closedir(list);
    if (count >= 4) return 1; // with . and ..
    usleep(10000);
  }
  return 0;
}

// Leaves a file in the folder that COUNT names, and takes its time.
static void count_compilation(const char *source) {
  char path[512];
  if (sscanf(strstr(source, "COUNT"), "COUNT %480s", path) != 1) return;
  strcat(path, "/XXXXXX");
  int file = mkstemp(path);
  if (file >= 0) close(file);
  usleep(100000);
}

int nvrtcCompileProgram(struct program *program, int count, const char **options) {
  const char *source = program->source;
  char log[1024];
  if (useStack() != 1) return 1;
  if (strstr(source, "CRASH")) { fprintf(stderr, "scripted crash\n"); fflush(stderr); abort(); }
  if (strstr(source, "COUNT")) count_compilation(source);
  if (strstr(source, "MEET") && !meet(source)) return 6;
  if (strstr(source, "REFUSE")) return 5;
  if (strstr(source, "FAIL")) {
    snprintf(log, sizeof log,
             "%s(2): error: identifier \"undeclared\" is undefined\n\n1 error detected in the compilation of \"%s\".\n",
             program->name, program->name);
    free(program->log), program->log = strdup(log);
    return 6;
  }
  if (program->wrong != NULL) {
    snprintf(log, sizeof log, "%s(1): error: identifier \"wrong\" is undefined\n", program->wrong);
    free(program->log), program->log = strdup(log);
    return 6;
  }
  int length = (int)strlen(program->name) - 3;
  snprintf(
      log, sizeof log,
      "ptxas info    : Compiling entry function '%.*s' for 'sm_90a'\nptxas info    : Function properties for %.*s\n"
      "    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\nptxas info    : Used 168 registers, used 1 "
      "barriers, 16 bytes stack, 2048 bytes smem\n",
      length, program->name, length, program->name);
  free(program->log), program->log = strdup(log);
  size_t bytes = 64 + strlen(program->headers) + strlen(source);
  for (int i = 0; i < count; i++) bytes += strlen(options[i]) + 1;
  char *cubin = calloc(1, bytes + 1);
  memcpy(cubin, strstr(source, "JUNK") ? "\x7f" "EXE\2\1" : "\x7f" "ELF\2\1", 6);
  cubin[18] = (char)190;
  size_t at = 64;
  for (int i = 0; i < count; i++) at += (size_t)sprintf(cubin + at, "%s\n", options[i]);
  at += (size_t)sprintf(cubin + at, "%s", program->headers);
  memcpy(cubin + at, source, strlen(source));
  program->cubin = cubin;
  program->cubinBytes = bytes;
  return 0;
}

int nvrtcGetProgramLogSize(struct program *program, size_t *bytes) { *bytes = strlen(program->log) + 1; return 0; }
int nvrtcGetProgramLog(struct program *program, char *log) { strcpy(log, program->log); return 0; }
int nvrtcGetCUBINSize(struct program *program, size_t *bytes) {
  *bytes = strstr(program->source, "VAST") ? (size_t)1 << 40 : program->cubinBytes;
  return 0;
}
int nvrtcGetCUBIN(struct program *program, char *cubin) {
  memcpy(cubin, program->cubin, program->cubinBytes);
  return 0;
}
