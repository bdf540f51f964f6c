/**
 * Parameter counts of kernels, read from images without a driver: PTX, real cubins if nvcc is installed, and damaged
 * ones.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../kernels.js';

const SOURCE = fileURLToPath(new URL('../../../runtime/native/cudaImage.cc', import.meta.url));
const isThere = (program: string): boolean => spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0;
const [hasCompiler, hasNvcc] = [isThere('c++'), isThere('nvcc')];
if (!hasCompiler) console.warn('SKIPPED reading kernel images: no c++ on PATH');
if (!hasNvcc) console.warn('SKIPPED reading cubins: no nvcc on PATH');

/** Prints `NAME COUNT` for an image's kernels, then reads every prefix of the image and thousands of damaged copies. */
const MAIN = `
#include "${SOURCE}"
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>
int main(int, char **arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::vector<char> image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const auto &[name, count] : tw::parameterCounts(image.data(), image.size()))
    std::printf("%s %zu\\n", name.c_str(), count);
  // Copies of their own length, so that reading past the end is noticed.
  for (size_t length = 0; length < image.size(); length += length < 4096 ? 1 : 61) {
    const std::vector<char> start(image.begin(), image.begin() + static_cast<long>(length));
    tw::parameterCounts(start.data(), start.size());
  }
  unsigned state = 1;
  const auto next = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
  for (int round = 0; round < 5000; round++) {
    std::vector<char> bad = image;
    // Every second copy is damaged in its first 64 bytes only.
    const size_t damaged = round % 2 ? std::min<size_t>(64, bad.size()) : bad.size();
    for (int i = 0; i < 4; i++) {
      char &byte = bad[damaged * (next() % 4096) / 4096];
      byte = static_cast<char>(next() % 3 ? 255 : next());
    }
    tw::parameterCounts(bad.data(), bad.size());
  }
}
`;

describe.skipIf(!hasCompiler)('parameters of an image', () => {
  const folder = hasCompiler ? temporaryFolder() : '';
  const program = join(folder, 'counts');
  beforeAll(() => {
    writeFileSync(`${program}.cc`, MAIN);
    execFileSync('c++', [
      '-std=c++17',
      '-O1',
      '-g',
      '-Wall',
      '-Wextra',
      '-Werror',
      '-fsanitize=address,undefined',
      '-fno-sanitize-recover=all',
      '-o',
      program,
      `${program}.cc`,
    ]);
  });
  const read = (image: string): Record<string, number> =>
    Object.fromEntries(
      execFileSync(program, [image], { encoding: 'utf8' })
        .trim()
        .split('\n')
        .filter((line) => line !== '')
        .map((line): [string, number] => [line.split(' ')[0]!, Number(line.split(' ')[1])]),
    );
  const readText = (text: string): Record<string, number> => {
    const file = join(folder, 'image');
    writeFileSync(file, text);
    return read(file);
  };

  it('are counted in PTX, without reading out of bounds', () => {
    const ptx =
      '.version 7.8\n.visible .entry two(.param .u32 T, .param .align 64 .b8 map[128]) { ret; ' +
      '}\n.visible .entry none()\n{ ret; }\n.entry bare { ret; }\n.visible .entry\tone ' +
      '(\n\t.param .u64 one_param_0\n)\n{ .param .b32 local; ret; }\n';
    expect(readText(ptx)).toEqual({ two: 2, none: 0, bare: 0, one: 1 });
    expect(readText('\x7fELF\x02\x01')).toEqual({});
    expect(readText('.entry open(.param .u32 a')).toEqual({});
  });

  it.skipIf(!hasNvcc).each(['80', '90a'])('are counted in cubins for sm_%s', (arch) => {
    const source = join(folder, 'kernels.cu');
    writeFileSync(
      source,
      `struct alignas(64) tw_map { unsigned long long opaque[16]; };
extern "C" __global__ void k_map(int T, int R, float *p, float *q, const __grid_constant__ tw_map m) {
  if (T > R) p[threadIdx.x] = q[1] + (float)m.opaque[2];
}
extern "C" __global__ void k_plain(int T, int R, float *p) { p[threadIdx.x] = T; }
extern "C" __global__ void k_none() {}
`,
    );
    const cubin = join(folder, `kernels${arch}.cubin`);
    execFileSync('nvcc', ['-cubin', `-gencode=arch=compute_${arch},code=sm_${arch}`, '-o', cubin, source]);
    expect(read(cubin)).toEqual({ k_map: 5, k_plain: 3, k_none: 0 });
  });
});
