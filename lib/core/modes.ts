/** Modes of the library that are on while a function runs. */

/**
 * Whether ops are recorded. Autograd sets it; ops that save values for a gradient read it.
 * @internal
 */
export const gradState: { recording: boolean } = { recording: true };

/** Whether `lossParallel` is on. @internal */
export const lossMode: { parallel: boolean } = { parallel: false };
