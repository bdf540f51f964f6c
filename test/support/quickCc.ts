/**
 * A C compiler for tests: the system's, with the same flags, but the headers of generated kernels are compiled once in
 * a run. They take half of the time of a kernel. Where kernels compute little, -O1 saves a third of what is left; -Og
 * saves no more, and doubles the time of a run.
 *
 * An object is kept by its text, its headers, and how it is compiled: test files that run side by side compile the same
 * kernels, each for a cache of its own or before another has filled theirs. The trial with which the product checks a
 * compiler is kept too. It is a program, not a script, because most of what it is asked for is there already, and a
 * script would start a dozen programs to find that out.
 */

const HEADERS = ['stdint.h', 'string.h', 'math.h', 'stdlib.h'];

const lines = [
  ...HEADERS.map((name) => `#include <${name}>`),
  '#if defined(__AVX2__)',
  '#include <immintrin.h>',
  '#endif',
];

/** Its C text. `folder`: where everything is kept. `optimization` replaces -O3. */
export const programText = (compiler: string, folder: string, optimization: string): string => `
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *COMPILER = ${JSON.stringify(compiler)}, *FOLDER = ${JSON.stringify(folder)};
static const char *HEADERS = ${JSON.stringify(`${lines.join('\n')}\n`)};

static void fail(const char *what) { perror(what); exit(99); }
static char *text(const char *format, const char *a, const char *b) {
  char *made;
  if (asprintf(&made, format, a, b) < 0) fail("asprintf");
  return made;
}

/* FNV-1a, 128 bits. */
static unsigned __int128 hash;
static void hash_begin(void) {
  hash = ((unsigned __int128)0x6c62272e07bb0142ull << 64) | 0x62b821756295c58dull;
}
static void hash_bytes(const void *data, size_t bytes) {
  const unsigned __int128 prime = ((unsigned __int128)1 << 88) | 0x13b;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * prime;
}
/* With its end: neighbours do not run into each other. */
static void hash_text(const char *each) { hash_bytes(each, strlen(each) + 1); }
static char *hash_path(void) {
  char name[40];
  snprintf(name, sizeof name, "%016llx%016llx", (unsigned long long)(hash >> 64), (unsigned long long)hash);
  return text("%s/%s", FOLDER, name);
}

static char *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) return 0;
  struct stat status;
  if (fstat(fileno(file), &status)) fail(path);
  char *data = malloc((size_t)status.st_size + 1);
  *bytes = fread(data, 1, (size_t)status.st_size, file);
  fclose(file);
  return data;
}
static void hash_file(const char *path) {
  size_t bytes;
  char *data = read_file(path, &bytes);
  hash_text(path);
  if (data) hash_bytes(data, bytes);
  hash_text("");
  free(data);
}
/* Every header below a folder, in the order of names. */
static void hash_headers(const char *folder) {
  struct dirent **found;
  int count = scandir(folder, &found, 0, alphasort);
  for (int i = 0; i < count; i++) {
    const char *name = found[i]->d_name;
    char *path = text("%s/%s", folder, name);
    size_t length = strlen(name);
    if (found[i]->d_type == DT_DIR && name[0] != '.') hash_headers(path);
    else if (length > 2 && !strcmp(name + length - 2, ".h")) hash_file(path);
    free(path);
  }
}

static void write_file(const char *path, const char *data, size_t bytes, mode_t mode) {
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0) fail(path);
  for (size_t done = 0; done < bytes;) {
    ssize_t now = write(file, data + done, bytes - done);
    if (now < 0) fail(path);
    done += (size_t)now;
  }
  close(file);
}
static int copy(const char *from, const char *to) {
  size_t bytes;
  struct stat status;
  char *data = read_file(from, &bytes);
  if (!data || stat(from, &status)) return 0;
  write_file(to, data, bytes, status.st_mode & 0777);
  free(data);
  return 1;
}

/* The status of the program. */
static int run(char *const *argv, int is_quiet) {
  pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    if (is_quiet && !freopen("/dev/null", "w", stderr)) _exit(99);
    execvp(argv[0], argv);
    _exit(127);
  }
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}
/* Held until this process ends, however it does; programs that it starts do not hold it. */
static int lock(const char *path) {
  char *name = text("%s.lock%s", path, "");
  int file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) fail(name);
  while (flock(file, LOCK_EX))
    if (errno != EINTR) fail(name);
  free(name);
  return file;
}

/* Headers are precompiled for the flags that decide what they mean. Without precompiled headers, their text does. */
static char *headers_of(char *const *flags, int count) {
  hash_begin();
  for (int i = 0; i < count; i++) hash_text(flags[i]);
  char *own = hash_path(), *header = text("%s/%s", own, "headers.h");
  if (!access(own, F_OK)) return header;
  int held = lock(own);
  if (access(own, F_OK)) {
    char pid[24];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    char *folder = text("%s.%s", own, pid), *file = text("%s/%s", folder, "headers.h");
    if (mkdir(folder, 0755)) fail(folder);
    write_file(file, HEADERS, strlen(HEADERS), 0644);
    char **argv = calloc((size_t)count + 8, sizeof *argv);
    int n = 0;
    argv[n++] = (char *)COMPILER;
    for (int i = 0; i < count; i++) argv[n++] = flags[i];
    argv[n++] = "-x", argv[n++] = "c-header";
    argv[n++] = "-o", argv[n++] = text("%s.gch%s", file, ""), argv[n++] = file;
    run(argv, 1);
    if (rename(folder, own)) fail(own);
  }
  close(held);
  return header;
}

int main(int argc, char **argv) {
  char **own = calloc((size_t)argc + 4, sizeof *own), **flags = calloc((size_t)argc, sizeof *flags);
  char *source = 0, *object = 0;
  int count = 0, is_object = 0, is_shared = 0;
  /* Room for -include and a name behind the compiler. */
  char **to = own + 2;
  for (int i = 1; i < argc; i++) {
    char *each = to[i] = strcmp(argv[i], "-O3") ? argv[i] : ${JSON.stringify(optimization)};
    size_t length = strlen(each);
    if (length > 2 && !strcmp(each + length - 2, ".c")) source = each;
    if (!strncmp(each, "-m", 2) || !strncmp(each, "-f", 2) || !strncmp(each, "-O", 2) ||
        !strncmp(each, "-std=", 5) || !strcmp(each, "-pthread"))
      flags[count++] = each;
    if (!strcmp(argv[i - 1], "-o")) object = each;
    if (!strcmp(argv[i - 1], "-I.") && !strcmp(each, "-c")) is_object = 1;
    if (!strcmp(each, "-shared")) is_shared = 1;
  }
  to[0] = (char *)COMPILER;
  if (!source) execvp(COMPILER, to), fail(COMPILER);
  /* What lies beside its source: the product's trial. Its few headers need no precompiled ones. */
  int is_trial = is_shared && object && !strchr(object, '/');
  if (!is_trial) {
    own[0] = (char *)COMPILER, own[1] = "-include", own[2] = headers_of(flags, count);
    to = own;
    if (!is_object || !object) execvp(COMPILER, to), fail(COMPILER);
  }
  hash_begin();
  for (int i = 0; to[i]; i++) hash_text(to[i]);
  /* Headers lie in the folder that it is compiled in. */
  if (is_object) hash_headers(".");
  hash_file(source);
  char *kept = hash_path(), *result = text("%s.o%s", kept, "");
  if (copy(result, object)) return 0;
  lock(kept);
  if (copy(result, object)) return 0;
  int status = run(to, 0);
  if (status) return status;
  char *part = text("%s.part%s", kept, "");
  if (!copy(object, part) || rename(part, result)) fail(result);
  return 0;
}
`;
