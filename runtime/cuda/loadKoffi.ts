/** koffi, which calls functions of shared libraries: loaded when one is opened, for most commands open none. */
import { createRequire } from 'node:module';
import type Koffi from 'koffi';

const require = createRequire(import.meta.url);

/**
 * koffi runs foreign code on stacks of its own, by default 128 KiB for calls in other threads. A compiler may recurse
 * as deep as its input nests: it gets the most that koffi allows. Only touched pages count. Must be set before koffi
 * loads any library.
 */
const STACK_BYTES = 16 * 2 ** 20;
/** cuBLASLt is called in the JavaScript thread. */
const SYNC_STACK_BYTES = 8 * 2 ** 20;

function hasLargeStacks(koffi: typeof Koffi): boolean {
  try {
    koffi.config({ async_stack_size: STACK_BYTES, async_heap_size: 2 ** 20, sync_stack_size: SYNC_STACK_BYTES });
    return true;
  } catch {
    const config: unknown = koffi.config();
    return (
      typeof config === 'object' &&
      config !== null &&
      'async_stack_size' in config &&
      config.async_stack_size === STACK_BYTES
    );
  }
}

let loaded: typeof Koffi | undefined;

/** koffi with stacks that are large enough for a compiler. Throws where a library was loaded without them. */
export function loadKoffi(): typeof Koffi {
  if (loaded === undefined) {
    const koffi = require('koffi') as typeof Koffi;
    if (!hasLargeStacks(koffi))
      throw new Error('koffi had loaded a library before loadKoffi(): its stacks are too small for a compiler');
    loaded = koffi;
  }
  return loaded;
}
