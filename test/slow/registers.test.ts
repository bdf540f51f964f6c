/** What NVIDIA's compiler makes of every case of the Hopper contraction and of attention, for every architecture. */
import * as attention from '../codegen/cuda/attentionRegisters.js';
import * as wgmma from '../codegen/cuda/wgmmaRegisters.js';
import { CUDA_ARCHS } from '../../ir/cuda.js';
import { hasNvcc } from '../support/nvcc.js';

if (!hasNvcc) process.stderr.write('SKIPPED test/slow/registers: nvcc is not on PATH\n');

wgmma.testRegisters(wgmma.COMPILED);
attention.testRegisters(attention.COMPILED, CUDA_ARCHS);
