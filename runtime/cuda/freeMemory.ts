/** Device memory that is free now, whatever other processes hold. */
import type { CudaAddon } from './addon.js';

/**
 * Kept free beside what a plan allocates: machine code, buffers through which weights are loaded, and the driver's own
 * memory. The context that asks is one of the things that are not free.
 */
const BESIDE = 512 << 20;

/** Bytes that a plan may take of the fullest of the devices. Opens each device for a moment. */
export function freeDeviceBytes(addon: CudaAddon, ordinals: readonly number[]): number {
  const free = ordinals.map((ordinal) => {
    const device = new addon.Device(ordinal);
    try {
      return device.memory().freeBytes;
    } finally {
      device.release();
    }
  });
  return Math.max(0, Math.min(...free) - BESIDE);
}
