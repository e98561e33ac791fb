/**
 * What tests print. Of named files each test, as mocha's spec reporter does; of all files a line for
 * each, with how many are done, and at the end what failed. `npm test` runs mocha several times: its last
 * lines sum up what all of them add to the folder that SHARDWISE_TEST_REPORT names.
 */
const { appendFileSync } = require('node:fs');
const path = require('node:path');
const { reporters, Runner } = require('mocha');
const { globSync } = require('tinyglobby');

const { EVENT_RUN_END, EVENT_TEST_FAIL, EVENT_TEST_PASS, EVENT_TEST_PENDING } = Runner.constants;
const folder = process.env.SHARDWISE_TEST_REPORT;
const { spec, ignore, parallel } = require('../.mocharc.cjs');

const Reporter = parallel ? reporters.Base : reporters.Spec;

module.exports = class extends Reporter {
  constructor(runner, options) {
    super(runner, options);
    if (parallel) reportFiles(runner);
    if (folder) record(runner, this.stats);
    if (parallel) runner.once(EVENT_RUN_END, () => this.epilogue());
  }
};

/** Prints a line for each file. The events of a file come together. */
function reportFiles(runner) {
  const total = globSync(spec, { ignore }).length;
  let done = 0;
  let current = null;
  const close = () => {
    if (current === null) return;
    const { file, passing, pending, failing, ms } = current;
    const counts = [`${passing} passing`];
    if (pending > 0) counts.push(`${pending} pending`);
    if (failing > 0) counts.push(`${failing} FAILING`);
    console.log(`[${++done}/${total}] ${file}: ${counts.join(', ')} (${(ms / 1000).toFixed(1)} s)`);
    current = null;
  };
  const of = (test) => {
    const file = path.relative(process.cwd(), test.file ?? '');
    if (current?.file !== file) {
      close();
      current = { file, passing: 0, pending: 0, failing: 0, ms: 0 };
    }
    current.ms += test.duration ?? 0;
    return current;
  };
  runner.on(EVENT_TEST_PASS, (test) => of(test).passing++);
  runner.on(EVENT_TEST_PENDING, (test) => of(test).pending++);
  runner.on(EVENT_TEST_FAIL, (test) => of(test).failing++);
  runner.once(EVENT_RUN_END, close);
}

/** Adds counts and failures to those of other runs. */
function record(runner, stats) {
  runner.on(EVENT_TEST_FAIL, (test, error) => {
    const [first] = String(error?.message).split('\n');
    appendFileSync(path.join(folder, 'failures.txt'), `  ${test.fullTitle()}\n    ${first}\n`);
  });
  runner.once(EVENT_RUN_END, () => {
    const { passes, pending, failures } = stats;
    const line = JSON.stringify({ passes, pending, failures });
    appendFileSync(path.join(folder, 'counts.txt'), `${line}\n`);
  });
}
