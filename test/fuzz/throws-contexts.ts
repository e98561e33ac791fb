/** Contexts in which native code calls JavaScript. */
export const contexts = ['timers', 'immediates', 'worker', 'commonjs'] as const;
export type Context = (typeof contexts)[number];
