/** Texts that native code knows by numbers: those of calls, as their errors say them. */
import assert from 'node:assert/strict';
import { withPurpose } from '../../lib/core/call-context.js';
import { collectiveKinds } from '../../lib/core/collective.js';
import { runLocalRanks } from '../../lib/distributed/local-ranks/run.js';
import { allReduce, CollectiveError, getRank, worldGroup } from '../../lib/distributed.js';
import { ones } from '../../lib/index.js';
import type { Addon } from '../../lib/native/addon.js';
import { TextNumbers } from '../../lib/native/text-numbers.js';
import { addon } from '../../lib/runtime.js';

const HEADER_WORDS = 14;

/** What native code has been told, in place of the addon. */
function listener(): { told: string[]; asked: number; addon: Addon } {
  const heard = { told: [''], asked: 0, addon: null as unknown as Addon };
  const setText = (number: number, text: string): void => {
    heard.told[number] = text;
    heard.asked++;
  };
  heard.addon = { setText } as unknown as Addon;
  return heard;
}

describe('texts of calls', () => {
  it('go over once, and any number of them in as many places as there are', () => {
    const heard = listener();
    const texts = new TextNumbers(heard.addon);
    const words = new Float64Array(4);
    for (let i = 0; i < 20_000; i++) {
      const said = ['allReduce', `file.ts:${i % 100}:1`, i < 100 ? '' : `after draw ${i}`] as const;
      texts.write(words, 1, ...said);
      assert.deepEqual(
        said.map((_, at) => heard.told[words[at + 1] as number]),
        said,
      );
      if (i === 99) assert.equal(heard.asked, 101);
    }
    assert.ok(heard.told.length <= 4096);
  });

  it('are refused by numbers that there are not, and so are calls with those', async () => {
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

  it('stay those of a call that waits, however many are said behind it', async () => {
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
