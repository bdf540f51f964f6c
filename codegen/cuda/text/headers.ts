/** The headers of CUDA kernels: all files of codegen/cuda that end in .cuh. */
import type { Header } from '../../../ir/unit.js';
import { Headers } from '../../headers.js';

const HEADERS = new Headers(new URL('..', import.meta.url));

/** Every header that a unit includes, behind those that it includes itself. */
export const cudaHeadersOf = (source: string): readonly Header[] => HEADERS.of(source);

/** Names of all headers. */
export const cudaHeaderNames = (): readonly string[] => HEADERS.names();

/** Names and texts of all headers, for a digest. */
export const cudaHeadersText = (): string => HEADERS.allText();
