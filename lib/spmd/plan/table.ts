/** A plan as text. */
import { formatTable } from '../../dtensor/debug/terminal.js';
import { formatBytes, formatSeconds } from '../timeline/units.js';
import type { LayoutPlan, StepPlan } from './plan.js';

const TITLES = [
  'layout',
  'step',
  'kernels',
  'collectives',
  'exposed',
  'memory',
  'parameters',
  'gradients',
  'optimizer',
  'activations',
  'sent by a rank',
];

/** A row a layout, and which is the fastest that fits. */
export function printPlan({ mesh, memoryBytes, layouts, fastest }: StepPlan): string {
  const dims = mesh.shape.map((size, i) => `${mesh.meshDimNames[i]}=${size}`).join(', ');
  const limit = memoryBytes === null ? '' : ` with ${formatBytes(memoryBytes)} a rank`;
  const isAny = layouts.some(({ problem }) => problem === null);
  return [
    `A step on (${dims})${limit}`,
    formatTable(TITLES, layouts.map(rowOf), [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ...layouts.flatMap(({ layout, problem }) =>
      problem === null ? [] : [`${layout} cannot run: ${problem}`],
    ),
    fastest !== null
      ? `The fastest that fits is ${fastest.layout}: ${formatSeconds(fastest.seconds)}`
      : isAny
        ? 'No layout fits'
        : 'No layout can run',
  ].join('\n');
}

function rowOf({ layout, problem, timeline, memory, fits, communication }: LayoutPlan): string[] {
  if (problem !== null || timeline === null) return [layout, ...TITLES.slice(1).map(() => '-')];
  const { total, compute, communication: collectives, exposed } = timeline;
  const { parameters, gradients, optimizerState, activations } = memory;
  const sent = Object.entries(communication).map(
    ([along, { calls, sentBytes }]) =>
      `${along}: ${formatBytes(sentBytes)} in ${calls} ${calls === 1 ? 'call' : 'calls'}`,
  );
  return [
    layout,
    ...[total, compute, collectives, exposed].map(formatSeconds),
    `${formatBytes(memory.total)}${fits ? '' : ' (too much)'}`,
    ...[parameters, gradients, optimizerState, activations].map(formatBytes),
    sent.join('; '),
  ];
}
