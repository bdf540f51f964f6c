/** Whether work was told to stop. A function, because the signal changes while its readers wait. */
export const isAborted = (signal: AbortSignal | undefined): boolean => signal?.aborted === true;
