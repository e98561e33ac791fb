/** Whether `lossParallel` is on. */

/** @internal */
export const lossMode: { parallel: boolean } = { parallel: false };
