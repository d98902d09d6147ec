"""FOLDER/manifest.json: size and CRC-32 of every file, by which tern knows the model that ships with it.

python manifest.py FOLDER           writes it anew, for the files as they are now
python manifest.py --check FOLDER   compares, as tern does
"""
import argparse
import json
import pathlib
import sys
import zlib

NAME = 'manifest.json'


def file_list(folder):
    """{relative path: {size, crc32}} of every file but the manifest, sorted by name."""
    paths = sorted(p for p in folder.rglob('*') if p.is_file() and p != folder / NAME)
    return {p.relative_to(folder).as_posix(): {'size': p.stat().st_size, 'crc32': f'{zlib.crc32(p.read_bytes()):08x}'} for p in paths}


def write_manifest(folder):
    """Writes the manifest; returns the number of files."""
    files = file_list(folder)
    (folder / NAME).write_text(json.dumps({'files': files}, indent=1) + '\n', encoding='utf-8')
    return len(files)


def differences(folder):
    """What a manifest and the files of its folder do not agree on, one line each."""
    listed, found = json.loads((folder / NAME).read_text(encoding='utf-8'))['files'], file_list(folder)
    for name in sorted(listed.keys() | found.keys()):
        if listed.get(name) != found.get(name):
            yield f'{name}: listed {listed.get(name)}, found {found.get(name)}'


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('folder', type=pathlib.Path)
    ap.add_argument('--check', action='store_true')
    args = ap.parse_args()
    if args.check:
        wrong = list(differences(args.folder))
        sys.exit('\n'.join(wrong) if wrong else 0)
    print(f'{write_manifest(args.folder)} files listed in {args.folder / NAME}')


if __name__ == '__main__':
    main()
