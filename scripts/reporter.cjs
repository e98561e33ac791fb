/**
 * Mocha's spec reporter, which also appends each failure to the file that SHARDWISE_TEST_FAILURES
 * names: `npm test` runs mocha several times, and its last lines tell what failed in any of them.
 */
const { appendFileSync } = require('node:fs');
const { reporters, Runner } = require('mocha');

const file = process.env.SHARDWISE_TEST_FAILURES;

module.exports = class extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    if (!file) return;
    runner.on(Runner.constants.EVENT_TEST_FAIL, (test, error) => {
      appendFileSync(file, `  ${test.fullTitle()}\n    ${String(error?.message).split('\n')[0]}\n`);
    });
  }
};
