/**
 * Whether operations are recorded: autograd sets it, ops that keep something for a gradient ask.
 */

/** @internal */
export const gradState: { recording: boolean } = { recording: true };
