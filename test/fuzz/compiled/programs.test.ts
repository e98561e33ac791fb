/** Random programs give compiled what they give run eagerly: values, gradients, layouts, identity. */
import assert from 'node:assert/strict';
import { CompileError, compile } from '../../../lib/index.js';
import { Rng } from '../rng.js';
import { fuzzCompiled } from './compiled.js';
import { drawProgram } from './draw.js';
import { instantiate } from './program.js';

const SEED = 11;
const PROGRAMS = 200;
const CALLS = 3;

describe('compiled random programs', () => {
  it(`give the results of ${PROGRAMS} eager ones with each backend`, function () {
    this.timeout(300_000);
    for (let i = 0; i < PROGRAMS; i++) {
      try {
        fuzzCompiled(new Rng(SEED, i), () => {}, CALLS);
      } catch (error) {
        const again = `npm run fuzz -- --plain --target compile --seed ${SEED} --case ${i}`;
        assert.fail(`${(error as Error).message}\nagain: ${again}`);
      }
    }
  });

  it('are captured, most of them', () => {
    let captured = 0;
    for (let i = 0; i < 60; i++) {
      const { fn, inputs } = instantiate(drawProgram(new Rng(SEED, i)));
      try {
        compile(fn, { backend: 'eager', fullgraph: true })(...inputs(0));
        captured++;
      } catch (error) {
        assert.ok(error instanceof CompileError, String(error));
      }
    }
    assert.ok(captured >= 40, `${captured} of 60`);
  });
});
