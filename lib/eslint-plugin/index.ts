/** The entry `shardwise/eslint-plugin`: rules for programs with tensors. */
import { noTensorCondition } from './no-tensor-condition.js';
import type { Plugin, RuleConfig } from './rule.js';

export type { Plugin, Rule, RuleConfig, RuleContext, RuleListener, RuleNode } from './rule.js';

const rules = { 'no-tensor-condition': noTensorCondition };

/**
 * The plugin. A flat configuration names it, or takes its recommended rules.
 */
const plugin: Plugin<keyof typeof rules> & { readonly configs: { recommended: RuleConfig } } = {
  meta: { name: 'shardwise' },
  rules,
  configs: {
    get recommended(): RuleConfig {
      return {
        name: 'shardwise/recommended',
        files: ['**/*.{ts,mts,cts,tsx}'],
        languageOptions: { parserOptions: { projectService: true } },
        plugins: { shardwise: plugin },
        rules: { 'shardwise/no-tensor-condition': 'error' },
      };
    },
  },
};

export default plugin;
