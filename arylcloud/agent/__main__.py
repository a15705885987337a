import sys

from arylcloud.agent.main import main

if __name__ == "__main__":
    sys.exit(main())
