/** Texts that native code knows by numbers: those of calls, for their errors. */
import assert from 'node:assert/strict';
import { withPurpose } from '../../lib/core/call-context.js';
import { collectiveKinds } from '../../lib/core/collective.js';
import { runLocalRanks } from '../../lib/distributed/local-ranks/run.js';
import { allReduce, CollectiveError, getRank, worldGroup } from '../../lib/distributed.js';
import { ones } from '../../lib/index.js';
import type { Addon } from '../../lib/native/addon.js';
import { TextNumbers } from '../../lib/native/text-numbers.js';
import { addon } from '../../lib/runtime.js';

const HEADER_WORDS = 17;

/** Records the texts, in place of the addon. */
function recorder(): { texts: string[]; calls: number; addon: Addon } {
  const recorded = { texts: [''], calls: 0, addon: null as unknown as Addon };
  const setText = (number: number, text: string): void => {
    recorded.texts[number] = text;
    recorded.calls++;
  };
  recorded.addon = { setText } as unknown as Addon;
  return recorded;
}

describe('texts of calls', () => {
  it('pass to native code once each, and any number of them share 4096 numbers', () => {
    const recorded = recorder();
    const texts = new TextNumbers(recorded.addon);
    const words = new Float64Array(4);
    for (let i = 0; i < 20_000; i++) {
      const said = ['allReduce', `file.ts:${i % 100}:1`, i < 100 ? '' : `after draw ${i}`] as const;
      texts.write(words, 1, ...said);
      assert.deepEqual(
        said.map((_, at) => recorded.texts[words[at + 1] as number]),
        said,
      );
      if (i === 99) assert.equal(recorded.calls, 101);
    }
    assert.ok(recorded.texts.length <= 4096);
  });

  it('are refused for invalid numbers, and so are calls with such numbers', async () => {
    for (const number of [0, -1, 4096, 2 ** 40, 0.5, Number.NaN])
      assert.throws(() => addon.setText(number, 'text'), { code: 'SW_INVALID' });
    for (const text of [undefined, null, 3, {}])
      assert.throws(() => addon.setText(5, text as unknown as string), { code: 'SW_INVALID' });
    const refused = async (): Promise<void> => {
      const t = ones([2]);
      allReduce(t);
      await t.read();
      const words = new Float64Array(addon.words);
      const { member } = (worldGroup() as unknown as { engines: { member: number }[] })
        .engines[0] as { member: number };
      const call = new Float64Array(HEADER_WORDS);
      call[0] = member;
      call[1] = collectiveKinds.indexOf('barrier');
      words.set(call);
      addon.collective(HEADER_WORDS);
      for (const at of [11, 12, 13]) {
        for (const number of [-1, 4095, 4096, 2 ** 50, 0.5, Number.NaN]) {
          words.set(call);
          words[at] = number;
          assert.throws(() => addon.collective(HEADER_WORDS), { code: 'SW_INVALID' });
        }
      }
      for (const length of [-1, 0, HEADER_WORDS - 1, HEADER_WORDS + 1, 2 ** 40]) {
        words.set(call);
        assert.throws(() => addon.collective(length), { code: 'SW_INVALID' });
      }
    };
    await runLocalRanks(1, refused, { timeoutMs: 5000 });
  });

  it('stay with a call that waits, however many texts follow', async () => {
    const differing = async (): Promise<void> => {
      const t = ones([2]);
      const purpose = getRank() === 0 ? 'of the first' : 'of the second';
      if (getRank() === 0) {
        withPurpose(purpose, () => allReduce(t));
        for (let i = 0; i < 5000; i++) withPurpose(`behind it ${i}`, () => allReduce(t));
      } else withPurpose(purpose, () => allReduce(t));
      await t.read();
    };
    await assert.rejects(runLocalRanks(2, differing, { timeoutMs: 5000 }), (error: Error) => {
      const cause = error instanceof CollectiveError ? error : (error.cause as Error);
      assert.match(cause.message, /of the first/);
      assert.match(cause.message, /of the second/);
      return true;
    });
  });
});
