/** Every option that the types declare runs: its declaration knows it, or a call accepts it. */
import assert from 'node:assert/strict';
import { absenceOf } from '../../lib/core/absent.js';
import { allDeclarations } from '../../lib/core/signature.js';
import { launch } from '../../lib/distributed.js';
import * as shardwise from '../../lib/index.js';
import { ones, Tensor, tensor } from '../../lib/index.js';
import {
  type Calls,
  callsOfProcess,
  callsOfRanks,
  type Options,
  type Values,
} from './distributed-option-calls.js';
import { calls, values } from './option-calls.js';
import { type DeclaredOptions, declaredOptions } from './option-types.js';

/** Not called: these need a GPU, or are JavaScript's own (`cause` of errors). */
const uncalled = /^(Tensor\.cuda|new cuda\.\w+|new (distributed\.|data\.)?\w+Error)$/;
/** Entry points that share names with the one of one process; all of them are called. */
const ofOtherEntries = /^(new )?(distributed|compile|testing)\./;
/** Aliases of functions. */
const aliases =
  /^(absolute|concat|concatenate|clip|divide|greater|greaterEqual|less|lessEqual|moveaxis|multiply|negative|notEqual|subtract|swapaxes|swapdims|trueDivide)$/;

/** All options of a function; of a class, those of its constructor and of its calls. */
function known(): Map<string, Set<string>> {
  const names = new Map<string, Set<string>>();
  for (const { name, positional, positionalOnly, keywordOnly } of allDeclarations()) {
    names.set(
      name,
      new Set([...(names.get(name) ?? []), ...positional.slice(positionalOnly), ...keywordOnly]),
    );
  }
  return names;
}

/**
 * The options in the declaration of a function, of the op behind an in-place method, or of the
 * aliased method.
 */
function declaredNames(name: string, names: Map<string, Set<string>>): Set<string> | undefined {
  const own = name.replace(/^new /, '').split('.').pop() as string;
  const direct = names.get(own) ?? names.get(own.replace(/_$/, ''));
  if (direct !== undefined || !name.startsWith('Tensor.')) return direct;
  const methods = Tensor.prototype as unknown as Record<string, unknown>;
  const other = [...names.keys()].find(
    (n) => Object.hasOwn(methods, n) && methods[n] === methods[own],
  );
  return other === undefined ? undefined : names.get(other);
}

/** The public function of a name that takes a tensor. */
function publicFunction(name: string): ((t: Tensor, options: object) => unknown) | undefined {
  if (name.startsWith('new ')) return undefined;
  const [owner, method] = name.split('.');
  if (owner === 'Tensor')
    return (t, options) =>
      (t as unknown as Record<string, (options: object) => unknown>)[method as string]?.(options);
  const found = name
    .split('.')
    .reduce<unknown>(
      (from, part) =>
        absenceOf(from) === undefined
          ? (from as Record<string, unknown> | undefined)?.[part]
          : undefined,
      shardwise,
    );
  return typeof found === 'function' && absenceOf(found) === undefined
    ? (found as (t: Tensor, options: object) => unknown)
    : undefined;
}

/** Functions that refuse a declared option, or accept an unknown one. */
async function refusals(
  declared: DeclaredOptions,
  calls: Calls,
  values: Values,
): Promise<string[]> {
  const wrong: string[] = [];
  for (const [name, call] of Object.entries(calls)) {
    const own = values[name] as Values | undefined;
    for (const option of declared.get(name) ?? []) {
      try {
        assert.ok(
          option in (own ?? {}) || option in values,
          'there is no value for it in the table',
        );
        await call({ [option]: own?.[option] ?? values[option] } as Options);
      } catch (error) {
        wrong.push(`${name}: ${option}: ${(error as Error).message}`);
      }
    }
    try {
      await call({ noSuchOption: 1 } as never);
      wrong.push(`${name} takes noSuchOption`);
    } catch (error) {
      if (!/there is no option "noSuchOption"/.test((error as Error).message))
        wrong.push(`${name}: noSuchOption: ${(error as Error).message}`);
    }
  }
  return wrong;
}

describe('the options that the types declare', function () {
  this.timeout(180_000); // TypeScript reads the whole library
  const names = known();
  let declared: DeclaredOptions;
  before(() => {
    declared = declaredOptions();
  });

  it('are found in the type checker', () => assert.ok(declared.size > 400, String(declared.size)));

  it('equal those of the declarations', () => {
    const unknown: string[] = [];
    for (const [name, options] of declared) {
      const has =
        calls[name] === undefined && !ofOtherEntries.test(name)
          ? declaredNames(name, names)
          : undefined;
      if (has !== undefined)
        unknown.push(
          ...[...options]
            .filter((option) => !has.has(option))
            .map((option) => `${name}: ${option}`),
        );
    }
    assert.deepEqual(unknown, []);
  });

  it('are accepted by the declared function, called with a tensor and the option alone', () => {
    const wrong: string[] = [];
    for (const [name, options] of declared) {
      if (ofOtherEntries.test(name)) continue;
      const fn = publicFunction(name);
      const has = calls[name] === undefined ? declaredNames(name, names) : undefined;
      if (fn === undefined || has === undefined) continue;
      for (const option of options) {
        try {
          fn(ones([2, 2]), { [option]: option in values ? values[option] : 1 });
        } catch (error) {
          if (/there is no option/.test((error as Error).message))
            wrong.push(`${name}: ${option}: ${(error as Error).message}`);
        }
      }
    }
    assert.deepEqual(wrong, []);
  });

  it('run in functions without a declaration', async () =>
    assert.deepEqual(await refusals(declared, calls, values), []));

  it('run on the ranks of a group', async () => {
    const refused = await launch(2, async (rank) => {
      const { calls, values } = callsOfRanks(rank);
      return refusals(declared, calls, values);
    });
    assert.deepEqual(refused, [[], []]);
  });

  it('run in stores, groups and launch, where ranks start', async () => {
    const { calls, values, end } = callsOfProcess();
    try {
      assert.deepEqual(await refusals(declared, calls, values), []);
    } finally {
      end();
    }
  });

  it('are all called or declared, except those listed here', async () => {
    const ofRanks = await launch(2, (rank) => Object.keys(callsOfRanks(rank).calls));
    const ofProcess = callsOfProcess();
    ofProcess.end();
    const called = new Set(
      [calls, ofProcess.calls].flatMap((table) => Object.keys(table)).concat(...ofRanks),
    );
    const isCovered = (name: string): boolean =>
      called.has(name) || (!ofOtherEntries.test(name) && declaredNames(name, names) !== undefined);
    assert.deepEqual(
      [...declared.keys()].filter(
        (name) => !isCovered(name) && !uncalled.test(name) && !aliases.test(name),
      ),
      [],
    );
    assert.deepEqual(
      [...called].filter((name) => !declared.has(name)),
      [],
    );
  });

  it('are refused under other names', () => {
    assert.throws(
      () => tensor([1]).sum({ dims: 0 } as never),
      /there is no option "dims"; options are dim, keepdim, dtype/,
    );
  });
});
