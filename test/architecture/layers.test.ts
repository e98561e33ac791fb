/** The imports in lib/ follow the rules of .dependency-cruiser.cjs. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { cruise, type ICruiseResult } from 'dependency-cruiser';
import { describe, it } from 'mocha';

const config = createRequire(import.meta.url)('../../.dependency-cruiser.cjs');

describe('the layers of lib/', function () {
  this.timeout(60_000);

  it('import only layers below them', async () => {
    const { output } = await cruise(['lib'], {
      ...config.options,
      validate: true,
      ruleSet: { forbidden: config.forbidden },
    });
    const { summary } = output as ICruiseResult;
    assert.ok(summary.totalCruised > 50, 'it must have seen the sources');
    assert.deepEqual(
      summary.violations.map(({ rule, from, to }) => `${rule.name}: ${from} -> ${to}`),
      [],
    );
  });
});
