/** Where JavaScript is called from outside. */
export const contexts = ['timers', 'immediates', 'worker', 'commonjs'] as const;
export type Context = (typeof contexts)[number];
