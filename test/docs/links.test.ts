/** Pages link to pages, headings and files that exist, and name files of the tree that exist. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { skipWithoutTools } from '../skip.js';
import { root } from './blocks.js';

/** None without git, without which the tests are skipped. */
const tracked = (...patterns: string[]): string[] =>
  (spawnSync('git', ['ls-files', ...patterns], { cwd: root, encoding: 'utf8' }).stdout ?? '')
    .trim()
    .split('\n')
    .filter((file) => file !== '' && existsSync(path.join(root, file)));
const pages = tracked('*.md');

const read = (page: string): string => readFileSync(path.join(root, page), 'utf8');
const withoutCode = (text: string): string => text.replaceAll(/^```[\s\S]*?^```/gm, '');

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(page: string): string[] {
  return [...withoutCode(read(page)).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

function isBroken(page: string, target: string): boolean {
  const [file = '', anchor] = target.split('#');
  const found = file === '' ? page : path.join(path.dirname(page), file);
  if (!existsSync(path.join(root, found))) return true;
  return anchor !== undefined && !anchorsOf(found).includes(anchor);
}

/** The targets of a page's links and reference definitions. */
function targetsOf(page: string): string[] {
  const text = withoutCode(read(page));
  const links = [...text.matchAll(/\]\(([^)\s]+)\)/g), ...text.matchAll(/^\[[^\]]+\]: (\S+)$/gm)];
  return links.map(([, target = '']) => target);
}

const isUrl = (target: string): boolean => /^https?:/.test(target);

describe('the links of the pages', () => {
  before(function () {
    skipWithoutTools(this, 'git');
  });
  for (const page of pages) {
    it(`${page} links to what exists`, () => {
      const inTree = targetsOf(page).filter((target) => !isUrl(target));
      assert.deepEqual(
        inTree.filter((target) => isBroken(page, target)),
        [],
      );
    });

    it(`${page} names files that exist`, () => {
      const named = withoutCode(read(page)).matchAll(
        /`((?:lib|native|test|docs|scripts|bench|examples)\/[\w./-]+)`/g,
      );
      const missing = [...named]
        .map(([, file = '']) => file)
        .filter((file) => !existsSync(path.join(root, file)) && !file.includes('NAME'));
      assert.deepEqual(missing, []);
    });
  }

  it('ARCHITECTURE.md names sources by names that exist', () => {
    const sources = new Set(tracked('lib', 'native').map((file) => path.basename(file)));
    const named = withoutCode(read('ARCHITECTURE.md')).matchAll(
      /`(\w[\w.-]*\.(?:ts|cc|cu|h|cuh))`/g,
    );
    assert.deepEqual(
      [...named].map(([, file = '']) => file).filter((file) => !sources.has(file)),
      [],
    );
  });
});

/** The package has README.md alone of the pages, so its links are addresses. */
describe('the links of README.md on npm', () => {
  const { homepage, repository, bugs } = JSON.parse(read('package.json'));
  const project = bugs.replace(/\/issues$/, '');
  const raw = project.replace('github.com', 'raw.githubusercontent.com');
  const files = [`${project}/blob/main/`, `${raw}/main/`];

  it('are addresses of what exists in the repository, or of others', () => {
    const images = [...read('README.md').matchAll(/ src="([^"]+)"/g)].map(
      ([, target = '']) => target,
    );
    const wrong = [...targetsOf('README.md'), ...images].filter((target) => {
      if (target.startsWith('#')) return isBroken('README.md', target);
      const folder = files.find((each) => target.startsWith(each));
      return folder ? isBroken('README.md', target.slice(folder.length)) : !isUrl(target);
    });
    assert.deepEqual(wrong, []);
  });

  it('stand where they are used', () => {
    assert.deepEqual(withoutCode(read('README.md')).match(/^\[[^\]]+\]: |\]\[[^\]]+\]/gm), null);
  });

  it('belong to the repository that package.json names', () => {
    assert.equal(homepage, `${project}#readme`);
    assert.deepEqual(repository, { type: 'git', url: `git+${project}.git` });
  });
});
