/** Checks the titles of commits: at most 72 columns, from the day on that this was checked. */
import { execFileSync } from 'node:child_process';
import { reportFindings } from './report-findings.js';

const MOST_COLUMNS = 72;
const log = execFileSync('git', ['log', '--since=2026-11-29T00:00:00Z', '--format=%h %s'], {
  encoding: 'utf8',
});
const tooLong = log.split('\n').filter((line) => {
  const title = line.slice(line.indexOf(' ') + 1);
  return title.length > MOST_COLUMNS;
});
reportFindings(
  tooLong.map((line) => `a title of more than ${MOST_COLUMNS} columns: ${line}`),
  'titles of commits are in order',
);
