/**
 * Whether suites that multiply variants run all of them, as `npm run nightly` does. `npm test` takes a
 * fixed part, in which each variant occurs.
 */
export const takesAll = process.env['SHARDWISE_TEST_ALL'] === '1';
