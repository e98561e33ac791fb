/**
 * Writes the tables of timelines in docs/spmd.md and their pictures: simulated ones by the model, and
 * those of ranks from the newest figures in bench/results; and pictures of graphs. With --check, fails
 * if they differ.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { layeredStep, passesOf } from '../bench/layered-step.js';
import { FakeTensorMode, type Graph } from '../lib/compile/index.js';
import { destroyProcessGroup, initProcessGroup } from '../lib/distributed.js';
import { writer } from '../lib/eager/submit.js';
import * as spmd from '../lib/spmd/index.js';
import { withParts, writeOrCheck } from './written-parts.js';

const results = fileURLToPath(new URL('../bench/results', import.meta.url));
const WORLDS = [8, 64, 512, 4096] as const;
const LARGE = 4096;
const setting = { dim: 4096, batch: 4096, device: 'cuda', bucketMb: 100, target: 'relu' } as const;
const PASSES = passesOf(setting);

const code = (name: string): string => (name === 'no passes' ? name : `\`${name}\``);
const table = (head: string, rows: readonly (readonly string[])[]): string =>
  [head, ...rows.map((cells) => `| ${cells.join(' | ')} |`), ''].join('\n');

/** Hundredths where there are few milliseconds. */
const milliseconds = (ms: number): string => `${ms.toFixed(ms < 100 ? 2 : 1)} ms`;

interface Simulated {
  readonly rates: string;
  readonly text: string;
  readonly pictures: readonly string[];
  /** Main graphs of a few layers. */
  readonly drawn: readonly string[];
}

async function simulated(): Promise<Simulated> {
  await initProcessGroup('fake', { rank: 0, worldSize: LARGE });
  const graphs = new FakeTensorMode().run(() =>
    PASSES.map((_, i) => layeredStep(setting, i, { lastTrainStep: true }).gm.main),
  );
  const drawn = new FakeTensorMode().run(() => [
    graphPicture(0, 'Without passes'),
    graphPicture(2, 'Fused collectives and late waits'),
  ]);
  destroyProcessGroup();
  const exposed = (waits: 'graph' | 'use'): string =>
    table(
      `| exposed, ${waits === 'use' ? 'waits at uses' : 'waits of the graph'} | ${WORLDS.map(worldOf).join(' | ')} |\n` +
        `| --- |${' --: |'.repeat(WORLDS.length)}`,
      graphs.map((graph, i) => [
        code(PASSES[i]?.[0] ?? ''),
        ...WORLDS.map((worldSize) =>
          milliseconds(spmd.timeline(graph, { waits, worldSize }).exposed * 1e3),
        ),
      ]),
    );
  const text = `${exposed('graph')}\n${exposed('use')}`;
  const rates = ratesTable(graphs[0] as Graph);
  const picture = (at: number, what: string): string =>
    spmd.timeline(graphs[at] as never, { title: `${what}, 4,096 ranks` }).toSvg();
  const pictures = [picture(0, 'Without passes'), picture(2, 'Fused collectives and late waits')];
  return { rates, text, pictures, drawn };
}

const worldOf = (ranks: number): string => `${ranks.toLocaleString('en')} ranks`;

/** The known rates: a row a table. */
function ratesTable(graph: Graph): string {
  const tera = (rate: number | undefined): number => Number(((rate ?? 0) / 1e12).toPrecision(3));
  const giga = (rate: number | undefined): string => `${((rate ?? 0) / 1e9).toFixed(0)} GB/s`;
  const rows = (['h200', 'h100', 'cpu'] as const).map((known) => {
    const { name, flops, memory, launch, links } = spmd.timeline(graph, { rates: known })
      .rates as spmd.Rates;
    return [
      `\`'${known}'\``,
      name,
      `${tera(flops['bfloat16'])} TFLOP/s`,
      `${tera(flops['float32'])} TFLOP/s`,
      `${tera(memory)} TB/s`,
      `${(launch * 1e6).toFixed(1)} us`,
      giga(links[0]?.bandwidth),
      giga(links.at(-1)?.bandwidth),
    ];
  });
  return table(
    '| `rates` | machine | bfloat16 | float32 | memory | launch | link in a machine | between machines |\n' +
      '| --- | --- | --: | --: | --: | --: | --: | --: |',
    rows,
  );
}

/** The main graph of three layers after some passes as a picture. */
function graphPicture(last: number, title: string): string {
  const graph = layeredStep({ ...setting, layers: 3 }, last).gm.main;
  graph.title = title;
  return graph.toSvg();
}

/** What bench/spmd-overlap.ts keeps. */
interface Overlap {
  readonly machine: string;
  readonly date: string;
  readonly commit: string;
  readonly rows: readonly {
    readonly pass: string;
    readonly predictedMs: number;
    readonly ms: number;
    readonly exposedMs: number;
    readonly predictedSpeedUp: number;
    readonly speedUp: number;
  }[];
  readonly timelines: readonly (readonly spmd.TimelineEntry[])[];
}

/** The newest figures of a machine. */
function newest(machine: RegExp): { readonly file: string; readonly overlap: Overlap } {
  const names = readdirSync(results).filter((name) => name.endsWith('-spmd-overlap.json'));
  const file = names
    .filter((name) => machine.test(name))
    .sort()
    .at(-1) as string;
  return { file, overlap: JSON.parse(readFileSync(`${results}/${file}`, 'utf8')) as Overlap };
}

function seen(machine: RegExp): { readonly text: string; readonly overlap: Overlap } {
  const { file, overlap } = newest(machine);
  const rows = overlap.rows.map((row) => [
    code(row.pass),
    milliseconds(row.exposedMs),
    milliseconds(row.ms),
    milliseconds(row.predictedMs),
    row.speedUp.toFixed(2),
    row.predictedSpeedUp.toFixed(2),
  ]);
  const text = table(
    `${overlap.machine}, ${overlap.date}, at ${overlap.commit}\n(bench/results/${file}):\n\n` +
      '| | exposed | step | predicted | speed-up | predicted |\n' +
      '| --- | --: | --: | --: | --: | --: |',
    rows,
  );
  return { text, overlap };
}

const ofModel = await simulated();
const [onCpu, onGpus] = [seen(/\d-cores/), seen(/\dx-nvidia/)];
const seenPicture = (at: number, what: string): string => {
  const entries = onCpu.overlap.timelines[at] as readonly spmd.TimelineEntry[];
  return new spmd.Timeline(`${what}, seen by a rank`, null, entries).toSvg();
};
const pictures = {
  'graph-before': ofModel.drawn[0],
  'graph-after': ofModel.drawn[1],
  'timeline-before': ofModel.pictures[0],
  'timeline-after': ofModel.pictures[1],
  'timeline-seen-before': seenPicture(0, 'Without passes'),
  'timeline-seen-after': seenPicture(2, 'Fused collectives and late waits'),
};
const texts = [ofModel.rates, ofModel.text, onCpu.text, onGpus.text];
const codes = [
  writeOrCheck('docs/spmd.md', (page) => withParts(page, texts)),
  ...Object.entries(pictures).map(([name, svg]) =>
    writeOrCheck(`docs/images/${name}.svg`, () => svg as string),
  ),
];
writer.addon.shutdown();
process.exit(Math.max(...codes));
