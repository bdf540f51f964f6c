/**
 * Waits on the device with a time limit. A kernel that never ends cannot be stopped from here: whoever waits for it
 * gives up, and nothing that it uses is released.
 */

/** Longest wait for the device to answer, in seconds. */
const PATIENCE_SECONDS = 60;

export class Hung extends Error {
  override readonly name = 'Hung';
}

/** Whether work ended because the device does not answer. None of its memory can be released. */
export const isDeviceHung = (error: unknown): boolean =>
  error instanceof Hung || (error instanceof Error && error.cause instanceof Hung);

/** Rejects with Hung if `work` takes longer. */
export async function patiently<T>(work: Promise<T>, seconds = PATIENCE_SECONDS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const end = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Hung(`the device has not answered for ${seconds} s`));
    }, seconds * 1000);
  });
  try {
    return await Promise.race([work, end]);
  } finally {
    clearTimeout(timer);
  }
}
