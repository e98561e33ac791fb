/** Modes of the library that a function turns on or off for what it runs. */

/** Whether ops are recorded: autograd sets it, ops that save something for a gradient read it. @internal */
export const gradState: { recording: boolean } = { recording: true };

/** Whether `lossParallel` is on. @internal */
export const lossMode: { parallel: boolean } = { parallel: false };
